"""Training of the whole TumorChain model (Eq. 8)."""

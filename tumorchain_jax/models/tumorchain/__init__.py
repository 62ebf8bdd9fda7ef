"""The assembled TumorChain model: encoder, projector, organ classifier, decoder."""

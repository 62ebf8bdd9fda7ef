"""BEiT."""

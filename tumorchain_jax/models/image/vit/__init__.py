"""Vision transformer."""

"""Programs compiled for machines that are not at hand: whether they fit, and what they send."""

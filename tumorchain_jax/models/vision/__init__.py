"""Vision-encoder families."""

"""Training of the segmentation network."""

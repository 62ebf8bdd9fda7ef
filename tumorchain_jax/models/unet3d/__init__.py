"""nnU-Net's networks: the segmentation expert of every round of reasoning."""

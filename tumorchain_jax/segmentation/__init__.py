"""The segmentation expert: nnU-Net's models, run as nnU-Net runs them."""

"""Organ segmentation: nnU-Net's models, run as nnU-Net runs them."""

"""Classifiers of 2D images: ResNet, Swin, ViT and BEiT, as timm has them."""

"""ResNet."""

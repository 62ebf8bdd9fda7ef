"""The 3D ResNet-152 of Merlin and Astra."""

"""A small ResNet that also finds the lesion, and classifies by what lies within and its shape."""

"""Published weights in, PyTorch weights out: streamed, checked, and equal to the byte."""

"""The task `translation`: CycleGAN or CUT between pictures of two devices or data sets."""

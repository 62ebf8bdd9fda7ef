"""TumorChain in JAX: interleaved chain-of-thought reasoning over 3D CT."""

__version__ = "0.1.0"
NOTICE = "Research software, not a medical device: not for diagnosis or treatment."

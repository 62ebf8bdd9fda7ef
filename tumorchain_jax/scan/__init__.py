"""A CT before it is a tensor: reading, geometry, organs, phantoms. Knows numpy, not JAX."""

"""CT scans and label maps: reading, checks, geometry, preprocessing. Imports numpy, not JAX."""

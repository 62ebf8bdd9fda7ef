"""Models behind endpoints, shown slices of a scan by a named policy."""

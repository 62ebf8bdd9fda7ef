"""Benchmarks: speed on this machine against reference implementations."""

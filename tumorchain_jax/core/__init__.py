"""Errors, atomic files, checked JSON, path rules, configuration files, downloads, worker pools."""

"""Layers that all model families share."""

"""Swin transformer."""

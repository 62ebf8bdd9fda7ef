"""Qwen3, the dense decoder."""

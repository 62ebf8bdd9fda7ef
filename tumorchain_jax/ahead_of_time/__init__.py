"""Ahead-of-time compilation for target hardware: memory, FLOPs and collective traffic."""

"""Organ-guided iterative interleaved reasoning (paper, section 3.2)."""

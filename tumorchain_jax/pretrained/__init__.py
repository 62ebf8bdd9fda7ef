"""Paths of the models that ship with the package."""

from pathlib import Path

NANO_CHECKPOINT = Path(__file__).parent / "nano"
NANO_SEGMENTER = Path(__file__).parent / "nano_segmenter"

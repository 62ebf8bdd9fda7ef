"""Paths of the models that ship with the package."""

from pathlib import Path

NANO_CHECKPOINT = Path(__file__).parent / "nano"
BUS_NANO = Path(__file__).parent / "bus_nano"
NANO_SEGMENTER = Path(__file__).parent / "nano_segmenter"

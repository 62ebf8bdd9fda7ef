"""Agents of the engine: Reasoner, Calibrator, Summarizer, and how they work together."""

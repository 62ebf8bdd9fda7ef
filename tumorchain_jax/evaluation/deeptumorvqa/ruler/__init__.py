"""Measuring on masks, and what the measurements answer."""

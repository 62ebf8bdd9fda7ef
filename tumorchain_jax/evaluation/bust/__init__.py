"""BUST-AI Bench: readers, an arbiter, models and a safety set on breast ultrasound pictures."""

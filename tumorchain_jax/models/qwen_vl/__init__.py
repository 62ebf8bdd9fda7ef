"""Qwen2.5-VL whole: vision tower, merger, multimodal positions and the decoder."""

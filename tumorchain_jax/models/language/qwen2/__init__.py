"""The Qwen2.5 decoder."""

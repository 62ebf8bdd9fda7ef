"""The task `vision_language`: Qwen2.5-VL on chats about pictures, in full or by LoRA."""

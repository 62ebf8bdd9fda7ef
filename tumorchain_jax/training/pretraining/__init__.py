"""Vision-encoder pretraining with auxiliary patch labels."""

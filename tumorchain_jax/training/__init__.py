"""Training: a loop that knows no model, and a folder for each task."""

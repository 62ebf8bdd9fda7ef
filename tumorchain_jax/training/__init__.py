"""Training on one process: loss, optimizer, step, loop, checkpoint, metrics."""

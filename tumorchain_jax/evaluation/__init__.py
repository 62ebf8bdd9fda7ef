"""Evaluation: accuracy of a model on cases whose truth is known."""

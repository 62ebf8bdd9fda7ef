"""How good a model is, on cases whose truth is known."""

"""Weights on disk: tensor files, pickles, Orbax folders, model folders; matching by table."""

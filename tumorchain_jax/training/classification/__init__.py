"""The task `classification`: a classifier of 2D pictures, trained on folds of a manifest."""

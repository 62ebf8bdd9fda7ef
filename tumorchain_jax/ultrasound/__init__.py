"""Breast ultrasound: pictures, patients, folds, baselines and scores of classifiers."""

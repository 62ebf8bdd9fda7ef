"""Cross-validation, baselines and pages of breast-ultrasound classifiers."""

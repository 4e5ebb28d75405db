"""Adversarial examples of smoothed classifiers."""

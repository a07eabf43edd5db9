"""Weights of the detector for handwriting; `entourage detect run --model muscima` loads them. CC BY-NC-SA 4.0."""

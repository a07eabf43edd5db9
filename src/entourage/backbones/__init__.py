"""Pretrained image encoders and the features they compute."""

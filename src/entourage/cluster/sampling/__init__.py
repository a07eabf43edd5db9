"""Samplers of training episodes: generated 2D points, labelled items and pairwise constraints."""

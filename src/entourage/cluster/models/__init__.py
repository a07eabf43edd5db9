"""Clustering networks and their components."""

"""Outlines to pixels: images, masks and degradation."""

"""Rendering of outlines to pixels: images, masks and degradation."""

"""Tiling of pages, refinement of boxes and files of results."""

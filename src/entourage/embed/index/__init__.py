"""Indices of embeddings: built incrementally from images or vectors, searched, compared and exported."""

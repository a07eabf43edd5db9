"""Samplers, recipes and training of embeddings."""

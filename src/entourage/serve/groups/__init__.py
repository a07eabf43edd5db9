"""Clusters in the browser: named, merged, split, and items moved between them."""

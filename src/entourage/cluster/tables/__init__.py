"""Clustering of tables of any width: candidate partitions of many methods, and a network that scores them."""

"""Preprocessing of pages: reading, straightening and scaling."""

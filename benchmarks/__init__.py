"""Entourage beside its peers, in one process and on the same data. Each module prints what it measured."""

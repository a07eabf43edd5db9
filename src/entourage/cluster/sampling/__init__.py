"""Episodes to train on: drawn from distributions, shapes, labelled items and constraints."""

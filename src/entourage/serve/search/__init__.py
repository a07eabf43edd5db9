"""Search in the browser: the nearest items of an index, accepted and refused, and found again."""

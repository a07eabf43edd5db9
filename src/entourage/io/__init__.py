"""Files in and out: atomic writes, safe readers, weights, progress."""

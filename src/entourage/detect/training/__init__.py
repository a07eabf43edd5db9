"""Training of detectors."""

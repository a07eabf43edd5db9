"""Ground truth, metrics and evaluation of detections."""

"""The Deep Watershed Detector: network, maps, losses and decoding."""

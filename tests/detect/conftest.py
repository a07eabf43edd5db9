from dataclasses import replace

import pytest

from entourage.detect.options import DetectorOptions, NetworkOptions


@pytest.fixture
def tiny() -> DetectorOptions:
    """Return the default options with a network of a few thousand weights."""
    network = NetworkOptions(widths=(8, 8, 12), blocks=(1, 1, 1), upwards=(8, 8, 8), hidden=16)
    return replace(DetectorOptions(), network=network)

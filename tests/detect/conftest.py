from dataclasses import replace

import pytest
import torch

from entourage.detect.options import DetectorOptions, NetworkOptions

torch.set_num_threads(1)  # tests run in parallel; their maps are small


@pytest.fixture
def tiny() -> DetectorOptions:
    """The default with a network of a few thousand weights."""
    network = NetworkOptions(widths=(8, 8, 12), blocks=(1, 1, 1), upwards=(8, 8, 8), hidden=16)
    return replace(DetectorOptions(), network=network)

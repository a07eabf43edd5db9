import pytest
import torch

torch.set_num_threads(1)  # tests run in parallel; their arrays are small


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

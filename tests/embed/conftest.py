import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

torch.set_num_threads(1)  # tests run in parallel; their arrays are small


@pytest.fixture(scope="session")
def toys() -> ModuleType:
    """A small network and small images, for tests of training."""
    spec = importlib.util.spec_from_file_location("embed_toys", Path(__file__).with_name("toys.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

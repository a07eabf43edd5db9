import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """The tasks that tests train here and in programs of their own."""
    spec = importlib.util.spec_from_file_location("training_worker", Path(__file__).with_name("worker.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # sums of several threads end in another order

from types import ModuleType

import pytest
import torch
from tests.training import worker as worker_module


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """The tasks that tests train here and in programs of their own."""
    return worker_module


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # sums of several threads end in another order

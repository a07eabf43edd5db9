from types import ModuleType

import pytest
import torch
from tests.training import worker as worker_module

torch.set_num_threads(1)  # tests run in parallel, and the order of sums depends on the number of threads


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """The tasks that tests train in this process and in child processes."""
    return worker_module

from types import ModuleType

import pytest
from tests.label.semi_supervised import toys as toys_module


@pytest.fixture(scope="session")
def toys() -> ModuleType:
    """Small networks and small images, for tests of training."""
    return toys_module

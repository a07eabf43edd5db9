import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def toys() -> ModuleType:
    """Small networks and small images, for tests of training."""
    spec = importlib.util.spec_from_file_location("classify_toys", Path(__file__).with_name("toys.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from entourage.lazy_imports import lazy_exports


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package with one module, which defines `answer`."""
    package, module = ModuleType("lazy_package"), ModuleType("lazy_package.module")
    module.__dict__["answer"] = 42
    package.__dict__["__getattr__"], package.__dict__["__dir__"] = lazy_exports("lazy_package", {"module": ["answer"]})
    monkeypatch.setitem(sys.modules, "lazy_package", package)
    monkeypatch.setitem(sys.modules, "lazy_package.module", module)
    return package


def test_names_are_imported_on_first_use(package: ModuleType) -> None:
    assert "answer" not in vars(package)
    assert package.answer == 42
    assert vars(package)["answer"] == 42


def test_names_are_listed_before_their_first_use(package: ModuleType) -> None:
    assert "answer" in dir(package)


def test_other_names_raise_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="'lazy_package' has no attribute 'question'"):
        _ = package.question

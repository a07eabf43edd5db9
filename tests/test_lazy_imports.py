from __future__ import annotations

import sys
from types import ModuleType

import pytest

from entourage.lazy_imports import lazy_exports


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of which one module is there and defines `answer`."""
    package, module = ModuleType("lazy_package"), ModuleType("lazy_package.module")
    module.__dict__["answer"] = 42
    package.__dict__["__getattr__"], package.__dict__["__dir__"] = lazy_exports("lazy_package", {"module": ["answer"]})
    monkeypatch.setitem(sys.modules, "lazy_package", package)
    monkeypatch.setitem(sys.modules, "lazy_package.module", module)
    return package


def test_a_name_is_imported_at_its_first_use(package: ModuleType) -> None:
    assert "answer" not in vars(package)
    assert package.answer == 42
    assert vars(package)["answer"] == 42


def test_all_names_are_listed_before_their_first_use(package: ModuleType) -> None:
    assert "answer" in dir(package)


def test_other_names_are_missing_as_usual(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="'lazy_package' has no attribute 'question'"):
        _ = package.question

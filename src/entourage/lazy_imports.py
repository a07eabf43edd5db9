"""Lazy imports of the names that a package exports (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from entourage.extras import extra_imports


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that imports its exported names on first use.

    Args:
        package: the `__name__` of the package.
        modules: for each module, relative to the package, the names that it defines.

    Returns:
        The two functions. `__getattr__` raises AttributeError for any other name, and MissingExtraError if the module
        requires a package of an extra that is not installed.
    """
    sources = {name: module for module, names in modules.items() for name in names}

    def get_attribute(name: str) -> object:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with extra_imports():
            module = import_module(f"{package}.{sources[name]}")
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sources})

    return get_attribute, list_names

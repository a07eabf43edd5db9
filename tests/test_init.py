from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import entourage


@pytest.mark.parametrize("name", entourage.__all__)
def test_exported_names_are_imported_on_demand(name: str) -> None:
    assert getattr(entourage, name).__name__ == name
    assert name in dir(entourage)


@pytest.mark.parametrize("name", entourage.__all__)
def test_the_example_in_the_docstring_runs(name: str) -> None:
    value = getattr(entourage, name)
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in finder.find(value, name, globs={}):
        runner.run(example)
    results = runner.summarize()
    assert results.attempted > 0, f"{name} has no example"
    assert results.failed == 0


def test_import_loads_neither_torch_nor_a_subpackage() -> None:
    code = "import sys, entourage; sys.exit(bool({'torch', 'numpy', 'entourage.label'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

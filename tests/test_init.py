from __future__ import annotations

import doctest
import os
import subprocess
import sys

import pytest

import entourage

DEPENDENCIES = {
    *(
        "accelerate",
        "cv2",
        "fontTools",
        "jinja2",
        "lxml",
        "matplotlib",
        "numpy",
        "pandas",
        "PIL",
        "pyarrow",
        "pypdfium2",
    ),
    *("rich", "safetensors", "scipy", "sklearn", "soundfile", "torch", "typer", "verovio"),
}


@pytest.mark.parametrize("name", entourage.__all__)
@pytest.mark.extra("images", "music", "train")
def test_exported_names_are_imported_on_demand(name: str) -> None:
    assert getattr(entourage, name).__name__ == name
    assert name in dir(entourage)


@pytest.mark.parametrize("name", entourage.__all__)
@pytest.mark.extra("images", "music", "train")
def test_the_example_in_the_docstring_runs(name: str) -> None:
    value = getattr(entourage, name)
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in finder.find(value, name, globs={}):
        runner.run(example)
    results = runner.summarize()
    assert results.attempted > 0, f"{name} has no example"
    assert results.failed == 0


def loaded_modules(code: str) -> set[str]:
    """Return the names of the modules that a new interpreter has loaded after running `code`."""
    lines = ["import atexit, sys", "atexit.register(lambda: print(*sys.modules, file=sys.stderr))", code]
    result = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


def test_import_loads_neither_a_dependency_nor_a_subpackage() -> None:
    loaded = loaded_modules("import entourage")
    assert {name for name in loaded if name.startswith("entourage")} == {
        "entourage",
        "entourage.extras",
        "entourage.lazy_imports",
    }
    assert not DEPENDENCIES & loaded


def test_import_takes_less_than_200_milliseconds() -> None:
    def import_seconds() -> float:
        command = [sys.executable, "-X", "importtime", "-c", "import entourage"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
        (line,) = [line for line in lines if line.split("|")[-1] == " entourage"]
        return int(line.split("|")[1]) / 1e6

    assert min(import_seconds() for _ in range(3)) < 0.2


@pytest.mark.parametrize("command", ["", "label", "embed", "cluster", "engrave", "detect", "demo"])
def test_help_loads_no_dependency_but_typer(command: str) -> None:
    loaded = loaded_modules(
        f"import entourage.cli; sys.argv[1:] = {[*command.split(), '--help']}; entourage.cli.main()"
    )
    assert not (DEPENDENCIES - {"rich", "typer"}) & loaded


@pytest.mark.parametrize(
    ("variables", "code", "expected"),
    [
        ({}, "import entourage", "PASSIVE"),
        ({}, "import entourage.cli.main", "PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "import entourage", "ACTIVE"),
        ({"GOMP_SPINCOUNT": "100"}, "import entourage", "None"),
        ({}, "import sys; sys.modules['torch'] = None; import entourage", "None"),
    ],
)
def test_threads_wait_asleep_unless_the_user_has_chosen_or_torch_is_loaded(
    variables: dict[str, str], code: str, expected: str
) -> None:
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    command = [sys.executable, "-c", f"{code}; import os; print(os.environ.get('OMP_WAIT_POLICY'))"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment | variables).stdout
    assert printed.strip() == expected

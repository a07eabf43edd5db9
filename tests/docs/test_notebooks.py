"""The notebooks run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    found: list[dict[str, Any]] = content["cells"]
    return found


def test_there_is_a_notebook_for_each_first_task() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["groups", "music", "photographs", "search", "table"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_not_stored(path: Path) -> None:
    for cell in cells(path):
        assert isinstance(cell["source"], list)
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Each cell is compiled by itself, as Jupyter does, and all run in one namespace of a new process."""
    sources = ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]
    assert sources
    code = f"namespace = {{'__name__': '__main__'}}\nfor cell in {sources!r}:\n    exec(cell, namespace)"
    environment = {**os.environ, "MPLBACKEND": "agg", "ENTOURAGE_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", code],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_page_of_the_site_has_the_cells(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    from docs.hooks import notebook_page, on_page_markdown

    page = notebook_page(NOTEBOOKS[0])
    sources = ["".join(cell["source"]) for cell in cells(NOTEBOOKS[0])]
    assert page.startswith(sources[0])
    assert "notebooks/groups.ipynb" in page
    assert all(source in page for source in sources)
    assert on_page_markdown("![A\nfigure](../results/label_cifar10.svg)") == "![A\nfigure](results/label_cifar10.svg)"

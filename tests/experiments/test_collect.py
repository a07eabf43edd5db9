from __future__ import annotations

from pathlib import Path

import pytest

from experiments import collect


def test_printed_figures_stand_under_the_command_that_prints_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    for folder in ("benchmarks", "results", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "benchmarks" / "fast.py").write_text('"""How fast it is.\n\nMore."""\nOPTION = "--device"\n')
    (tmp_path / "benchmarks" / "any.py").write_text('"""Wherever it runs."""\n')
    for name in ("fast.cuda", "fast.even", "fast", "any.cuda"):
        (tmp_path / "results" / f"{name}.txt").write_text(f"{name} took 1 s\n")
    (tmp_path / "results" / "table.md").write_text("## A table\n")
    collect.main()
    head, *parts = (tmp_path / "docs" / "results.md").read_text().split("\n## ")
    found = [(part.splitlines()[0], part.splitlines()[2]) for part in parts[1:]]
    assert found == [
        ("Wherever it runs (on a GPU)", "`python -m benchmarks.any`"),
        ("How fast it is (on a GPU)", "`python -m benchmarks.fast --device cuda`"),
        ("How fast it is (even)", "`python -m benchmarks.fast --even`"),
        ("How fast it is", "`python -m benchmarks.fast`"),
    ]
    assert "any.cuda took 1 s" in parts[1]
    assert parts[0] == "A table\n"
    assert "- [A table](#a-table)\n- [Wherever it runs (on a GPU)](#wherever-it-runs-on-a-gpu)\n" in head


def test_anchors_are_as_github_has_them() -> None:
    assert collect.anchor("Digits with 10, 50: scikit-learn's `knn`") == "digits-with-10-50-scikit-learns-knn"

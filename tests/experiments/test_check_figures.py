from __future__ import annotations

from pathlib import Path

import pytest
from experiments.check_figures import blocks, check, contains, figures


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("# Title\n\nThe accuracy is 82 %.\n")
    (tmp_path / "results" / "label_a.md").write_text("| accuracy | 0.8214 | 1,234.5 |\n")
    (tmp_path / "results" / "detect_b.txt").write_text("network 167.8 ms, mAP 58.2, 7.2 x\n")
    return tmp_path


def page(root: Path, text: str, name: str = "label") -> list[str]:
    for path in (root / "docs").iterdir():
        path.unlink()
    (root / "docs" / f"{name}.md").write_text(text)
    return [figure for problem in check(root) for figure in problem.figures]


def test_the_figures_of_this_repository_are_in_results() -> None:
    assert [str(problem) for problem in check()] == []


def test_figures_are_found_after_rounding_and_in_other_units(root: Path) -> None:
    assert page(root, "It reaches 82.1 % of 1,234.5 items.") == []
    assert page(root, "A page takes 0.17 s, and FCOS 7.2 times as long.", "detect") == []
    assert page(root, "It reaches 82.2 %.", "detect") == ["82.2"]


def test_figures_of_a_block_are_in_one_file_of_the_command(root: Path) -> None:
    assert page(root, "It reaches 58.2 %.") == ["58.2"]
    assert page(root, "It reaches 82 and 58.2 %.", "training") == ["82"]
    assert page(root, "It reaches 82 %.\n\nThe other 58.2 %.", "training") == []


def test_a_problem_names_page_and_line(root: Path) -> None:
    (root / "README.md").write_text("# Title\n\n- one\n- accuracy\n  12.5 %\n")
    (problem,) = check(root)
    assert str(problem).startswith("README.md:4: 12.5 not in any one file of results/")


def test_comments_name_files_or_exempt_a_block(root: Path) -> None:
    assert page(root, "It reaches 58.2 %. <!-- results: detect_b.txt -->") == []
    assert page(root, "<!-- no results -->\n\n| option | value |\n|---|---|\n| x | 12.5 |\n") == []
    with pytest.raises(ValueError, match=r"docs/label\.md:1: missing\.md"):
        page(root, "It reaches 58.2 %. <!-- results: missing.md -->")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("62.3 % without, 62.6 % with it", ["62.3", "62.6"]),
        ("44.1 and 43.5 %", ["44.1", "43.5"]),
        ("95 to 98 % of all; 3 times as long", ["95", "98", "3"]),
        ("they gain 3.6 points, or 5 to 9 points", []),
        ("the thesis reports 73 %; this network 82 %", ["82"]),
        ("version 0.2.0, CC BY-NC-SA 4.0, Python 3.11 and `x = 0.5`", []),
        ("| set | mAP |\n|---|---|\n| clean | 91.4 |\n| thesis | 19.9 |", ["91.4"]),
        ("![0.5](a.png)", []),
    ],
)
def test_figures(text: str, expected: list[str]) -> None:
    assert figures(text) == expected


def test_blocks_have_the_numbers_of_their_lines() -> None:
    text = "# A\n\n```sh\nx 12.5\n```\n\n- one\n- two\n\nlast"
    assert [(line, block.strip()) for line, block in blocks(text)] == [
        (1, "# A"),
        (7, "- one"),
        (8, "- two"),
        (10, "last"),
    ]


def test_contains_needs_the_digits_that_are_quoted(root: Path) -> None:
    file = root / "results" / "label_a.md"
    assert contains(file, "82")
    assert contains(file, "82.14")
    assert not contains(file, "82.15")

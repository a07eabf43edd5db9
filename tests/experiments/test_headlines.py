"""The first page of docs/results.md: figures from results/, with links to the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from experiments.headlines import read_headlines
from experiments.ledger import RESULTS

from experiments import collect

PAGE = RESULTS.parent / "docs" / "results.md"


def test_each_command_has_two_or_three_headlines_with_row_and_n() -> None:
    headlines = read_headlines(RESULTS)
    commands = [line.command for line in headlines]
    assert list(dict.fromkeys(commands)) == ["label", "embed", "cluster", "engrave", "detect"]
    assert all(2 <= commands.count(command) <= 3 for command in commands)
    assert all(line.figure and line.row and re.search(r"\d", line.n) for line in headlines)


def test_figures_are_those_of_the_tables() -> None:
    for line in read_headlines(RESULTS):
        section = (RESULTS / line.source).read_text(encoding="utf-8").replace(",", "")
        numbers = re.findall(r"\d+\.\d+", line.figure)
        if line.command == "engrave" and line.source.endswith(".md"):
            numbers = ["0.998"]  # printed as a fraction
        assert all(number in section for number in numbers), line


def test_published_figures_name_their_network_and_simulated_scans_are_named() -> None:
    headlines = read_headlines(RESULTS)
    assert any("simulated scan" in line.row for line in headlines)
    assert all("(" in line.reference for line in headlines if line.reference.startswith("thesis"))
    assert not re.search(r"(?<!simulated )scan(?!ned)", " ".join(line.row for line in headlines))


def test_a_changed_result_changes_the_headline(tmp_path: Path) -> None:
    content = json.loads((RESULTS / "cluster_points.json").read_text(encoding="utf-8"))
    content["rows"]["default, seed 0"]["mr"] = 0.25
    (tmp_path / "cluster_points.json").write_text(json.dumps(content))
    (line,) = read_headlines(tmp_path)
    assert line.figure == "misclassification rate 0.250"
    (tmp_path / "engrave_corpus.txt").write_text("nothing\n")
    with pytest.raises(ValueError, match=r"engrave_corpus.txt: .*expected one"):
        read_headlines(tmp_path)


def test_all_links_of_the_page_lead_to_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    anchors = {collect.anchor(title) for title in re.findall(r"^## (.+)$", text, flags=re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) > 40
    assert set(links) <= anchors


def test_the_page_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("benchmarks", "results"):
        (tmp_path / folder).symlink_to(RESULTS.parent / folder)
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    collect.main()
    assert (tmp_path / "docs" / "results.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")

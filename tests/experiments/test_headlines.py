"""The first page of docs/results.md: figures from results/, with links to the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from experiments.headlines import read_headlines
from experiments.ledger import RESULTS

from experiments import collect

PAGE = RESULTS.parent / "docs" / "results.md"


def test_each_command_has_two_or_three_headlines_with_row_and_n() -> None:
    headlines = read_headlines(RESULTS)
    commands = [line.command for line in headlines]
    assert list(dict.fromkeys(commands)) == ["label", "embed", "cluster", "engrave", "detect", "read", "serve"]
    assert all(2 <= commands.count(command) <= 3 for command in commands if command != "read")
    assert 1 <= commands.count("read") <= 3  # one for each kind of music that is measured
    assert all(line.figure and line.row and re.search(r"\d", line.n) for line in headlines)


def test_figures_are_those_of_the_tables() -> None:
    for line in read_headlines(RESULTS):
        section = (RESULTS / line.source).read_text(encoding="utf-8").replace(",", "")
        numbers = re.findall(r"\d+(?:\.\d+)?", line.figure.replace(",", "").replace("F1", "").replace("p95", ""))
        if line.command == "engrave" and line.source.endswith(".md"):
            numbers = ["0.998"]  # printed as a fraction
        assert all(number in section for number in numbers), line


def test_published_figures_name_their_network_and_simulated_scans_are_named() -> None:
    headlines = read_headlines(RESULTS)
    assert any("simulated scan" in line.row for line in headlines)
    assert all("(" in line.reference for line in headlines if line.reference.startswith("thesis"))
    assert not re.search(r"(?<!simulated )(?<!real )scan(?!ned)", " ".join(line.row for line in headlines))


def test_a_changed_result_changes_the_headline(tmp_path: Path) -> None:
    content = json.loads((RESULTS / "cluster_points.json").read_text(encoding="utf-8"))
    content["rows"]["default, seed 0"]["mr"] = 0.25
    (tmp_path / "cluster_points.json").write_text(json.dumps(content))
    (line,) = read_headlines(tmp_path)
    assert line.figure == "misclassification rate 0.250"
    (tmp_path / "engrave_corpus.txt").write_text("nothing\n")
    with pytest.raises(ValueError, match=r"engrave_corpus.txt: .*expected one"):
        read_headlines(tmp_path)


@pytest.fixture
def read_rows(tmp_path: Path) -> Callable[..., None]:
    """Write rows of read pages, each with 3 edits of 200 symbols and 90 of 100 notes right, and their tables."""

    def write(name: str, *sets: str) -> None:
        score = {"edits": 3, "n_truth": 100, "n_found": 100, "notes_right": 90, "notes_truth": 100, "notes_found": 100}
        rows = {f"{one}: page {k}": {"all": score, "music": score} for one in sets for k in range(20)}
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "rows": rows}))
        (tmp_path / f"{name}.md").write_text("## Reading\n")

    return write


def test_reading_has_a_headline_for_each_kind_of_music(read_rows: Callable[..., None], tmp_path: Path) -> None:
    read_rows("read_pages_dev", "scans-mozart-print", "quartets-musescore-clean")
    quartets, scans = read_headlines(tmp_path)
    assert (quartets.command, quartets.figure, quartets.n) == (
        "read",
        "OMR-NED 1.5 %, F1 of notes 90.0 %",
        "20 pages, 2,000 notes",
    )
    assert quartets.row.startswith("quartets engraved by MuseScore, ")
    assert scans.row == ("real scans, Mozart, shipped detector, text not read; pages that the reader was developed on")
    assert "not the same pages" in quartets.reference
    assert "not the same pages" in scans.reference


def test_final_figures_of_reading_replace_those_of_development(read_rows: Callable[..., None], tmp_path: Path) -> None:
    read_rows("read_pages_dev", "scans-mozart-print", "songs-musescore-clean", "songs-musescore-scan")
    read_rows("read_pages", "scans-scarlatti-print", "scans-scarlatti-print+text", "songs-verovio-clean")
    final, dev = read_headlines(tmp_path)
    assert final.row == "real scans, Scarlatti, shipped detector, text read; held-out works"
    assert final.source == "read_pages.md"
    assert dev.row.startswith("songs engraved by MuseScore, ")
    assert dev.source == "read_pages_dev.md"


def test_reading_without_a_table_or_measured_pages_has_no_headline(
    read_rows: Callable[..., None], tmp_path: Path
) -> None:
    read_rows("read_pages", "songs-verovio-clean")
    assert read_headlines(tmp_path) == []
    read_rows("read_pages", "songs-musescore-clean")
    (tmp_path / "read_pages.md").unlink()
    assert read_headlines(tmp_path) == []


def test_suggestions_of_several_data_sets_are_read_from_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "label_suggestions.md"
    path.write_text(
        "Labels until 90% (on average 88.0% of digits, 4 seeds, 84.0% of Caltech-101, 3 seeds).\n\n"
        "| strategy | digits, labels | relative to random | Caltech-101, labels | relative to random |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| mixed | 12.5 ± 1.5 | 0.25 | 900.0 ± 9.0 | 0.90 |\n"
        "| random | 50.0 ± 7.0 | 1.00 | 1000.0 ± 8.0 | 1.00 |\n"
    )
    (line,) = read_headlines(tmp_path)
    assert (line.figure, line.n, line.reference) == ("12.5 ± 1.5 labels", "4 seeds", "50.0 ± 7.0 with random items")
    assert "suggested by mixed" in line.row


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

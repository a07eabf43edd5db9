from __future__ import annotations

import zipfile
from pathlib import Path

from experiments.detect_pages import HELD_OUT_FONT, TENTHS, data_sets, divide

from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score


def test_every_work_is_in_one_part_whatever_its_file_is_called(tmp_path: Path) -> None:
    archive = tmp_path / "songs.zip"
    with zipfile.ZipFile(archive, "w") as songs:
        for number in range(12):
            text = compose(1, number)
            songs.writestr(f"{number}.musicxml", text)
            songs.writestr(f"edition/{number}.musicxml", text)
    divide(archive, tmp_path / "scores")
    works: dict[str, set[str]] = {}
    for part in TENTHS:
        with zipfile.ZipFile(tmp_path / "scores" / f"{part}.zip") as scores:
            for name in scores.namelist():
                works.setdefault(parse_score(scores.read(name).decode(), name).work, set()).add(part)
    assert len(works) == 12
    assert all(len(parts) == 1 for parts in works.values())
    assert len(set.union(*works.values())) > 1
    divide(archive, tmp_path / "thin", every=2)
    for part in TENTHS:
        with (
            zipfile.ZipFile(tmp_path / "scores" / f"{part}.zip") as all_scores,
            zipfile.ZipFile(tmp_path / "thin" / f"{part}.zip") as thin,
        ):
            assert thin.namelist() == all_scores.namelist()[::2]


def test_one_font_is_never_learned_from_and_tests_see_only_works_of_their_part(tmp_path: Path) -> None:
    sets = data_sets(tmp_path, compose=10)
    learn = {name: options for name, options in sets.items() if name.startswith("learn-")}
    test = {name: options for name, options in sets.items() if name.startswith("test-")}
    assert all(HELD_OUT_FONT not in {font.name for font in options.fonts} for options in learn.values())
    assert [font.name for font in test["test-font"].fonts] == [HELD_OUT_FONT]
    assert {path.name for options in test.values() for path in options.sources} == {"test.zip"}
    assert "test.zip" not in {path.name for options in learn.values() for path in options.sources}
    assert {options.page.interline for options in learn.values()} == {10.0}
    assert {options.page.interline for options in test.values()} == {20.0}
    assert {learn["learn-composed"].seed, learn["learn-used"].seed}.isdisjoint({test["test-composed"].seed})

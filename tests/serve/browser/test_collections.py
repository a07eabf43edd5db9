"""Search, groups and detections in Chromium: a dropped picture, answers; names, splits and moves; corrected boxes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.serve.browser.conftest import NAMELESS, opened_page, picture, served, until
from tests.serve.browser.test_labelling import SHAPES, draw
from tests.serve.scores.conftest import write_detections

VERSION = "window.entourage.client.state.version"
N_ITEMS = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawings of three shapes, their index, and a clustering of them."""
    folder = tmp_path_factory.mktemp("collections")
    (folder / "shapes").mkdir()
    names = [f"{SHAPES[number % 3]}-{number:02d}.png" for number in range(N_ITEMS)]
    for number, name in enumerate(names):
        draw(SHAPES[number % 3], number).save(folder / "shapes" / name)
    command = [sys.executable, "-m", "entourage", "embed", "index", "shapes", "--out", "index"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "groups").mkdir()
    lines = [f"{name},{number % 3 // 2},{0.99 - number / 100:.2f}" for number, name in enumerate(names)]
    (folder / "groups" / "clusters.csv").write_text("\n".join(["item,cluster,probability", *lines]) + "\n")
    summary = {"made_by": "cluster run", "source": str(folder / "shapes")}
    (folder / "groups" / "summary.json").write_text(json.dumps(summary))
    return folder


@contextmanager
def opened(browser: Any, made: Path, folder: str, file: str) -> Iterator[Any]:
    """Open a page of a folder without the answers of an earlier test."""
    for path in (made / folder / file, *(made / folder / "serve").glob("*.jsonl")):
        path.unlink(missing_ok=True)
    with (
        served("serve", str(made / folder), "--source", str(made / "shapes")) as address,
        opened_page(browser, address) as page,
    ):
        until(page, "window.entourage !== undefined")
        until(page, f"window.entourage.client.state.n === {N_ITEMS}")
        until(page, "window.entourage.grid.items.length > 0")
        yield page


@pytest.fixture
def search(browser: Any, made: Path) -> Iterator[Any]:
    """The page of the index."""
    with opened(browser, made, "index", "found.csv") as page:
        yield page


@pytest.fixture
def groups(browser: Any, made: Path) -> Iterator[Any]:
    """The page of the clustering."""
    with opened(browser, made, "groups", "groups.csv") as page:
        yield page


def labels(path: Path) -> Counter[str]:
    with path.open(newline="", encoding="utf-8") as stream:
        return Counter(row["label"] for row in csv.DictReader(stream))


def test_a_dropped_picture_is_found_answered_and_found_again(search: Any, made: Path, tmp_path: Path) -> None:
    draw("bars", 400).save(tmp_path / "bars.png")
    search.locator("#name").fill("bars")
    search.locator("#name").blur()
    search.locator("#file").set_input_files(tmp_path / "bars.png")
    until(
        search,
        f"window.entourage.query.uploads.length === 1 && window.entourage.grid.items.length < {N_ITEMS} + 1",
        seconds=120,
    )
    until(search, "window.entourage.grid.items[0].cosine < 1")
    search.locator(".grid button").first.focus()
    version = search.evaluate(VERSION)
    for number, key in enumerate(("y", "y", "n"), start=1):
        search.keyboard.press(key)
        until(search, f"(version) => {VERSION} === version", version + number)
    picture(search, "serve-search")
    assert labels(made / "index" / "found.csv") == {"bars": 2, "not bars": 1}
    seen = search.evaluate("window.entourage.grid.items.slice(0, 3).map((item) => item.name)")
    search.keyboard.press("f")
    until(search, "(seen) => !window.entourage.grid.items.some((item) => seen.includes(item.name))", seen)
    search.keyboard.press("Backspace")
    until(search, f"(version) => {VERSION} === version", version + 4)
    assert labels(made / "index" / "found.csv") == {"bars": 2}


def test_an_item_is_a_query(search: Any) -> None:
    search.locator("#filter").fill("circle-00")
    until(search, "window.entourage.grid.items.length === 1")
    search.locator("#filter").blur()
    search.keyboard.press("q")
    until(search, "window.entourage.query.items.length === 1 && window.entourage.grid.items.length > 1")
    assert search.locator("#query button").count() == 1
    assert search.evaluate(NAMELESS) == []


def test_groups_are_named_merged_split_and_items_moved(groups: Any, made: Path) -> None:
    until(groups, "window.entourage.isOpen('cluster 0')")
    groups.evaluate("window.prompt = () => '2'")
    groups.get_by_label("Split cluster 0").click()
    until(groups, "window.entourage.client.state.classes.filter((one) => one.given).length === 3", seconds=180)
    path = made / "groups" / "groups.csv"
    assert set(labels(path)) == {"cluster 1", "cluster 0 1", "cluster 0 2"}
    groups.evaluate("window.prompt = () => 'bars'")
    groups.get_by_label("Name or merge cluster 1").click()
    until(groups, "window.entourage.client.state.classes.some((one) => one.name === 'bars')")
    assert labels(path)["bars"] == 20
    groups.get_by_label("Open bars").click()
    until(groups, "window.entourage.isOpen('bars') && window.entourage.total() === 20")
    picture(groups, "serve-groups")
    groups.locator(".grid button").nth(1).click()
    until(groups, "window.entourage.selected.size === 1")
    groups.keyboard.press("/")
    groups.keyboard.type("strange")
    groups.keyboard.press("Enter")
    until(groups, "window.entourage.total() === 19")
    assert labels(path)["strange"] == 1
    for left in (20, 20):
        groups.keyboard.press("Backspace")
        until(groups, "(left) => window.entourage.total() === left", left)


def test_dark_theme_narrow_window_and_names_for_screen_readers(groups: Any) -> None:
    groups.locator("#theme").click()
    assert groups.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    groups.set_viewport_size({"width": 420, "height": 800})
    assert groups.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert groups.evaluate(NAMELESS) == []
    groups.keyboard.press("?")
    assert groups.get_by_role("dialog", name="Keys").is_visible()


def test_detections_are_corrected_page_by_page(browser: Any, tmp_path: Path) -> None:
    found = write_detections(tmp_path)
    with (
        served("serve", str(found), "--source", str(tmp_path)) as address,
        opened_page(browser, address) as page,
    ):
        until(page, "document.querySelectorAll('#scan [data-symbol]:not([hidden])').length === 3")
        assert not page.locator("#engraving").is_visible()
        page.locator("#scan [data-class=noteheadBlackOnLine]").click()
        page.get_by_label("Class of the symbol").fill("noteheadHalfOnLine")
        page.get_by_role("button", name="Set class").click()
        until(page, f"{VERSION} === 1")
        until(page, "document.querySelectorAll('#scan [data-class=noteheadHalfOnLine]').length === 1")
        page.locator("#save").click()
        page.get_by_text("songs_page.json").wait_for()
        page.locator("#next").click()
        until(page, "window.entourage?.client.state.name === 'blank'")
        until(page, "window.entourage.client.page === 0")
        page.locator("#score").select_option(label="songs/page")
        until(page, "window.entourage?.client.state.name === 'songs/page'")
        until(page, "document.querySelectorAll('#scan [data-class=noteheadHalfOnLine]').length === 1")

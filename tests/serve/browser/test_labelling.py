"""Labelling in Chromium, with the keyboard alone, in both themes and in a narrow window."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.serve.browser.conftest import NAMELESS, opened_page, picture, served, until

SHAPES = ("circle", "square", "bars")
READY = "window.entourage.session.state.phase === 'ready'"
PLAYED = "(({playedVersion, version}) => playedVersion === version)(window.entourage.session.state)"


def draw(shape: str, seed: int) -> Image.Image:
    """Draw a shape with random size, place and colour."""
    generator = np.random.default_rng(seed)
    image = Image.new("RGB", (160, 160), tuple(generator.integers(205, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    left, top = generator.integers(15, 50, 2).tolist()
    side, color = int(generator.integers(60, 90)), tuple(generator.integers(0, 150, 3).tolist())
    if shape == "circle":
        pen.ellipse((left, top, left + side, top + side), fill=color)
    elif shape == "square":
        pen.rectangle((left, top, left + side, top + side), fill=color)
    else:
        for offset in range(0, side, 18):
            pen.rectangle((left, top + offset, left + side, top + offset + 8), fill=color)
    return image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 90 drawings of three shapes; one has a name that is HTML."""
    folder = tmp_path_factory.mktemp("browser") / "shapes"
    folder.mkdir()
    for number in range(90):
        shape = SHAPES[number % 3]
        draw(shape, number).save(folder / f"{shape}-{number:02d}.png")
    draw("circle", 99).save(folder / "<img src=x onerror=alert(1)>.png")
    return folder


@pytest.fixture
def address(photos: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a running server."""
    with served("label", str(photos), "--serve", "--out", str(tmp_path / "labelled")) as address:
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, whose graph is ready."""
    with opened_page(browser, address) as opened:
        until(opened, READY, seconds=180)
        yield opened


def current(page: Any) -> str:
    return str(page.locator(".stage .name").inner_text())


def label_with_keys(page: Any, count: int) -> None:
    """Label items by their names, with keys alone."""
    for _ in range(count):
        shape = re.match("[a-z]+", current(page))
        name = "none of these" if shape is None else shape[0]
        names = page.evaluate("window.entourage.session.state.classes.map((one) => one.name)")
        version = page.evaluate("window.entourage.session.state.version")
        if shape is None:
            page.keyboard.press("0")
        elif name in names:
            page.keyboard.press(page.evaluate("(name) => window.entourage.session.keyOf(name)", name))
        else:
            page.keyboard.press("/")
            page.keyboard.type(name)
            page.keyboard.press("Enter")
        until(page, "(version) => window.entourage.session.state.version > version", version)
    until(page, PLAYED)


def known(tmp_path: Path) -> dict[str, str]:
    with (tmp_path / "labelled" / "known.csv").open(newline="", encoding="utf-8") as stream:
        return {row["item"]: row["label"] for row in csv.DictReader(stream)}


def test_labelling_with_the_keyboard_alone(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 9)
    labels = known(tmp_path)
    assert len(labels) == 9
    assert all(label in ("none of these", item.split("-")[0]) for item, label in labels.items())
    rows = page.locator("#classes li")
    assert rows.count() == 3
    picture(page, "serve-label")
    first = current(page)
    page.keyboard.press("Space")
    assert current(page) != first
    page.keyboard.press("Backspace")
    until(page, "window.entourage.session.state.skipped === 0")
    for left in (8, 7):
        page.keyboard.press("Backspace")
        until(page, "(left) => window.entourage.session.state.labelled === left", left)
    assert len(known(tmp_path)) == 7


def test_accepting_a_class_and_taking_items_out(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 8)
    page.keyboard.press("PageDown")
    page.locator("#grid-kind").select_option("found")
    page.locator("#grid-class").select_option("square")
    found = "({count, items}) => count > 10 && items.every((item) => item.label === 'square' && !item.given)"
    until(page, f"({found})(window.entourage.views.items)")
    count = page.locator(".grid button").count()
    picture(page, "serve-items")
    first = page.locator(".grid button").first
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    before = len(known(tmp_path))
    page.keyboard.press("Enter")
    until(page, "(n) => window.entourage.session.state.labelled === n", before + count - 1)
    assert len(known(tmp_path)) == before + count - 1
    page.keyboard.press("Backspace")
    until(page, "(n) => window.entourage.session.state.labelled === n", before)


def test_search_by_name_and_export(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 4)
    page.locator("#tab-items").click()
    page.locator("#grid-query").fill("<IMG")
    until(page, "window.entourage.views.items.count === 1")
    assert page.locator(".grid img").count() == 1
    page.locator("#export").click()
    page.get_by_text("labels.csv").wait_for()
    assert (tmp_path / "labelled" / "labels.csv").is_file()


def test_classes_are_renamed_and_merged(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 6)
    page.evaluate("window.prompt = (question, name) => 'circle'")
    page.locator("#classes").get_by_label("Rename or merge square").click()
    until(page, "!window.entourage.session.state.classes.some((one) => one.name === 'square')")
    assert "square" not in known(tmp_path).values()


def test_the_lasso_selects_what_is_visible(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 6)
    page.locator("#tab-map").click()
    until(page, "window.entourage.views.map.codes?.length === 91")
    until(page, "window.entourage.views.map.positions?.length === 2 * 91")
    picture(page, "serve-map")
    box = page.locator(".map canvas").first.bounding_box()
    corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99)]
    points = [(box["x"] + u * box["width"], box["y"] + v * box["height"]) for u, v in corners]
    page.keyboard.down("Shift")
    page.mouse.move(*points[0])
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(x, y, steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    until(page, "window.entourage.views.map.selected.length > 80")
    given = known(tmp_path)
    page.keyboard.press("1")
    until(page, "window.entourage.session.state.labelled > 80")
    after = known(tmp_path)
    assert all(after[item] == label for item, label in given.items())
    page.keyboard.press("Backspace")
    until(page, "(n) => window.entourage.session.state.labelled === n", len(given))


def test_two_pages_see_each_other(page: Any, tmp_path: Path) -> None:
    label_with_keys(page, 3)
    other = page.context.new_page()
    other.goto(page.url)
    until(other, "window.entourage.session.state.labelled === 3")
    other.wait_for_selector(".stage img")
    label_with_keys(other, 1)
    until(page, "window.entourage.session.state.labelled === 4")
    assert len(known(tmp_path)) == 4


def test_dark_theme_and_narrow_window(page: Any) -> None:
    label_with_keys(page, 5)
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, "serve-narrow")
    page.locator("#tab-map").click()
    until(page, "window.entourage.views.map.codes?.length === 91")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_control_has_a_name_for_screen_readers(page: Any) -> None:
    label_with_keys(page, 3)
    for tab in ("label", "items", "map"):
        page.locator(f"#tab-{tab}").click()
        page.locator(f"#view-{tab} > *").first.wait_for()
        assert page.evaluate(NAMELESS) == []
    assert page.locator("[role=tab][aria-selected=true]").count() == 1
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()


def test_an_address_without_the_token_shows_how_to_get_one(browser: Any, address: str) -> None:
    context = browser.new_context()
    opened = context.new_page()
    opened.goto(address.partition("?")[0])
    opened.get_by_text("Open the address with the token").wait_for()
    context.close()

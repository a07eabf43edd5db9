"""A reading in Chromium: scan and engraving, playback, corrections with undo, and the files that are saved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.read.small import page_of
from tests.serve.browser.conftest import NAMELESS, opened_page, picture, served, until
from tests.serve.scores.conftest import piano

from entourage.read.formats.score_json import read_score

SHOWN = """(() => {
  const { client, engraving } = window.entourage;
  const numbered = client.state.systems.map((system, number) => [system, number]);
  const own = numbered.filter(([system]) => system.page === client.page);
  return client.page >= 0 && client.pageVersion === client.state.version && own.length > 0
    && own.every(([{ version }, number]) => engraving.systems.get(number)?.version === version);
})()"""
VERSION = "window.entourage.client.state.version"
NOTE = "window.entourage.client.note?.[2].pitch"


@pytest.fixture(scope="module")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that was engraved, and what `entourage read` reads on it."""
    folder = tmp_path_factory.mktemp("reading")
    (folder / "scans").mkdir()
    Image.fromarray(page_of(piano(), 1400, 900)).save(folder / "scans" / "piano.png")
    command = [sys.executable, "-m", "entourage", "read", "scans", "--out", "music", "--workers", "1"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def music(read_once: Path) -> Iterator[Path]:
    """The folder of the reading, without corrections."""
    folder = read_once / "music"
    yield folder
    for path in sorted([*(folder / "serve").glob("**/*"), *(folder / "corrected").glob("**/*")], reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture
def page(browser: Any, music: Path) -> Iterator[Any]:
    """The page, whose engraving is shown."""
    with opened_reading(browser, music) as opened:
        yield opened


@contextmanager
def opened_reading(browser: Any, music: Path) -> Iterator[Any]:
    """Run a server and open its page."""
    with (
        served("serve", str(music), "--source", str(music.parent / "scans")) as address,
        opened_page(browser, address) as opened,
    ):
        until(opened, "window.entourage !== undefined")
        until(opened, SHOWN)
        yield opened


def press(page: Any, *keys: str) -> None:
    """Press keys that correct the score, and wait until each correction is shown."""
    for key in keys:
        version = page.evaluate(VERSION)
        page.keyboard.press(key)
        until(page, f"(version) => {VERSION} > version", version)
        until(page, SHOWN)


def test_scan_and_engraving_mark_the_same_measure_and_note(page: Any) -> None:
    assert page.locator("#scan .measure").count() == page.locator("#engraving g.measure").count() == 4
    page.locator("#scan .measure").nth(2).click(position={"x": 4, "y": 4})
    lit = "[...document.querySelectorAll('.lit')].map((element) => element.dataset.m)"
    assert page.evaluate(lit) == ["2", "2"]
    page.locator("#engraving [data-note='0-0-1-0']").locator("use").first.click(force=True)
    until(page, f"{NOTE} === 'B4'")
    selected = "[...document.querySelectorAll('[data-note].selected')].map((element) => element.dataset.note)"
    assert page.evaluate(selected) == ["0-0-1-0", "0-0-1-0"]
    until(page, "document.querySelectorAll('#scan image').length > 0")


def test_corrections_with_the_keyboard_alone(page: Any, music: Path) -> None:
    page.keyboard.press("ArrowRight")
    until(page, f"{NOTE} === 'G4'")
    press(page, "ArrowUp", "#")
    until(page, f"{NOTE} === 'A#4'")
    press(page, "6")
    picture(page, "serve-score")
    own = "(row) => row[0][1] === 0 && row[2].staff === 1"
    values = f"window.entourage.client.notes.filter({own}).map((row) => row[2].value)"
    assert page.evaluate(values) == ["half", "quarter", "quarter", "quarter"]
    press(page, "Backspace", "Backspace", "Backspace")
    assert page.evaluate(values) == ["quarter", "quarter", "half", "half"]
    assert page.locator("#undo").is_disabled()
    press(page, "Shift+Backspace")
    until(page, f"{NOTE} === 'A4'")
    page.locator("#save").click()
    page.get_by_text("piano.musicxml").wait_for()
    score = read_score(music / "corrected" / "piano.json")
    assert str(score.parts[0].measures[0].chords[0].notes[0].pitch) == "A4"
    assert (music / "corrected" / "training" / "images" / "piano-1.png").is_file()


def test_corrections_are_kept_when_the_server_starts_again(browser: Any, music: Path) -> None:
    for expected in (1, 2):
        with opened_reading(browser, music) as page:
            page.keyboard.press("ArrowRight")
            until(page, f"{NOTE} !== undefined")
            press(page, "ArrowUp")
            assert page.evaluate(VERSION) == expected
            until(page, f"(pitch) => {NOTE} === pitch", ["A4", "B4"][expected - 1])


def test_measures_that_do_not_add_up_are_marked_with_the_reason(page: Any) -> None:
    page.get_by_label("Metre").select_option("2/4")
    until(page, f"{VERSION} === 1")
    until(page, SHOWN)
    marked = page.evaluate("window.entourage.client.state.measures.filter((row) => row[6] === 'marked').length")
    assert marked > 0
    page.keyboard.press("Escape")
    page.locator("#marked").click()
    page.locator(".reason.marked").wait_for()
    assert "does not add up: " in page.locator(".reason").inner_text()
    index = page.evaluate("window.entourage.client.measure")
    assert page.locator(f"#engraving [data-m='{index}'].marked").count() == 1
    assert page.locator(f"#scan .marked[data-m='{index}']").count() == 1
    page.locator("#engraving").click(position={"x": 2, "y": 2})
    press(page, "Enter")
    until(page, f"window.entourage.client.measureAt({index}).state === 'sure'")


def test_playback_moves_the_cursor_and_loops(page: Any) -> None:
    page.locator("#tempo").evaluate("(element) => { element.value = 180; element.dispatchEvent(new Event('input')); }")
    page.keyboard.press("l")
    page.keyboard.press("Space")
    cursor = "document.querySelector('#scan .cursor')"
    until(page, f"{cursor}.getAttribute('visibility') === 'visible'")
    until(page, "window.entourage.player.synth.sounding.size > 0")
    places = set()
    for _ in range(60):
        places.add(page.evaluate(f"Number({cursor}.getAttribute('x1'))"))
        assert page.locator("#engraving g.playing").get_attribute("data-m") == "0"
        page.wait_for_timeout(50)  # more than the four beats of the measure, at 180 beats a minute
    assert len(places) > 4
    box = page.evaluate("window.entourage.client.measureAt(0).box")
    assert all(box[0] <= x <= box[2] for x in places)
    page.get_by_label("Mute staff 2").check()
    page.locator("#scan .measure").first.click(position={"x": 4, "y": 4})
    page.keyboard.press("Space")
    until(page, f"{cursor}.getAttribute('visibility') === 'hidden'")
    assert not page.evaluate("window.entourage.player.isPlaying")


def test_symbols_are_switched_on_and_drawn_with_the_mouse(page: Any) -> None:
    page.locator("#inspector summary").click()
    shown = "document.querySelectorAll('#scan [data-symbol]:not([hidden])').length"
    assert page.evaluate(shown) == 0
    page.get_by_role("button", name="All", exact=True).click()
    assert page.evaluate(shown) > 20
    picture(page, "serve-score-symbols")
    page.get_by_role("button", name="None", exact=True).click()
    notes = page.evaluate("window.entourage.client.notes.length")
    page.get_by_role("button", name="Draw a new one").click()
    first = page.locator("#scan [data-note='0-0-0-0']").bounding_box()
    x, y = first["x"], first["y"] + 2.2 * first["height"]  # two spaces below the first note
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + first["width"], y + first["height"], steps=4)
    page.mouse.up()
    until(page, f"{VERSION} === 1")
    until(page, SHOWN)
    assert page.evaluate("window.entourage.client.notes.length") == notes + 1


def test_a_measure_is_split_and_joined_with_the_keyboard(page: Any) -> None:
    page.locator("#engraving [data-note='0-1-2-0']").locator("use").first.click(force=True)
    until(page, "window.entourage.client.measure === 1")
    press(page, "|")
    until(page, "document.querySelectorAll('#engraving g.measure').length === 5")
    assert page.evaluate("window.entourage.client.measure") == 2
    page.keyboard.press("Escape")
    page.locator("#scan .measure").nth(1).click(position={"x": 4, "y": 4})
    press(page, "j")
    until(page, "document.querySelectorAll('#engraving g.measure').length === 4")


def test_two_pages_see_each_other_and_lose_no_change(page: Any) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    until(other, "window.entourage !== undefined")
    until(other, SHOWN)
    for one, step in ((other, "ArrowDown"), (page, "ArrowDown")):
        one.keyboard.press("ArrowRight")
        until(one, f"{NOTE} !== undefined")
        press(one, step)
    for one in (page, other):
        until(one, f"{VERSION} === 2")
        until(one, SHOWN)
        until(one, f"{NOTE} === 'E4'")


def test_dark_theme_and_narrow_window(page: Any) -> None:
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, "serve-score-narrow")


def test_every_control_has_a_name_for_screen_readers(page: Any) -> None:
    page.keyboard.press("ArrowRight")
    until(page, f"{NOTE} !== undefined")
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()

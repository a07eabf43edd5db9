"""Chromium for the tests of the pages; `SCREENSHOTS=docs/images make test-browser` also stores the pictures of the
documentation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
FLAGS += ["--autoplay-policy=no-user-gesture-required", "--mute-audio"]
SCREENSHOTS = os.environ.get("SCREENSHOTS")
NAMELESS = """[...document.querySelectorAll("button, input, select, canvas[role], img, [role=img]")].filter((element) =>
  !(element.getAttribute("aria-label") || element.title || element.textContent.trim() || element.alt
    || element.labels?.length || element.querySelector?.("img[alt]"))).map((element) => element.outerHTML)"""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests of this folder; they run in `make test-browser` only."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if "browser" not in os.environ.get("ENTOURAGE_TESTS", ""):
                item.add_marker(pytest.mark.skip(reason="runs in `make test-browser`"))


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """Run a command of `entourage` that serves a page, and return its address."""
    command = [sys.executable, "-m", "entourage", *arguments, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def opened_page(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """Open a page; the test fails if one of its scripts does."""
    options = {"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce", **options}
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(address)
    yield page
    context.close()
    assert [problem for problem in problems if "409" not in problem] == []


def until(page: Any, expression: str, argument: Any = None, *, seconds: float = 60) -> None:
    """Wait for an expression; Playwright's own function evaluates text in the page, which the page forbids."""
    end = time.monotonic() + seconds
    while not _holds(page, expression, argument):
        assert time.monotonic() < end, f"timeout: {expression}"
        page.wait_for_timeout(20)


def _holds(page: Any, expression: str, argument: Any) -> bool:
    try:
        return bool(page.evaluate(expression, argument))
    except Exception as error:
        if "context was destroyed" in str(error):  # the page is being loaded again
            return False
        raise


def picture(page: Any, name: str) -> None:
    """Store a picture for the documentation."""
    if SCREENSHOTS:
        page.wait_for_timeout(500)
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium of the system; Playwright's own cannot be downloaded everywhere."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()

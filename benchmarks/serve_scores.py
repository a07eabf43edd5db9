"""A reading in the browser: opening, playback against the audio clock, corrected measures, undo; safety.

    entourage read TEN_PAGES/ --out reading --join
    python -m benchmarks.serve_scores reading --source TEN_PAGES/    # ten minutes; needs Playwright and Chromium

Chromium opens the page of `entourage serve`. Corrections alternate between pitches and durations, so that every second
one solves its measure again. Afterwards the server is killed while it corrects, and receives random requests. The
reading is copied; nothing is written to it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.machine import machine
from benchmarks.serve_label import VALUES, Server, run_server

FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
FLAGS += ["--autoplay-policy=no-user-gesture-required", "--mute-audio"]
SECONDS = 8.0  # of playback
UNDONE = 10  # corrections that are undone
KINDS = (
    "pitch",
    "accidental",
    "duration",
    "voice",
    "tie",
    "delete",
    "clef",
    "key",
    "meter",
    "reading",
    "accept",
    "class",
    "box",
    "remove",
    "add",
)
NAMES = (
    "part",
    "measure",
    "chord",
    "note",
    "steps",
    "value",
    "dots",
    "tuplet",
    "voice",
    "key",
    "meter",
    "clef",
    "staff",
    "page",
    "symbol",
    "name",
    "box",
    "accidental",
    "version",
)
PATHS = (
    "scores",
    "scores/0",
    "scores/0/pages/0",
    "scores/0/measures/1",
    "scores/0/systems/1",
    "scores/0/playback",
    "scores/0/tiles/0/2/0/0",
    "scores/9",
    "scores/0/edit",
    "scores/0/undo",
    "scores/0/redo",
    "download/x",
)
OPENED = """(() => {
  const { client, engraving } = window.entourage ?? {};
  if (!client || client.page < 0 || !engraving.systems.size) return false;
  const images = [...document.querySelectorAll("#scan image")];
  return images.length > 0 && [...engraving.systems.values()].every(({ version }) => version >= 0);
})()"""
CORRECT = """async ([kind, values]) => {
  const { client, engraving } = window.entourage;
  const system = client.systemOf(client.measure);
  const drawn = new Promise((resolve) => {
    const check = ({ detail }) => {
      if (detail.number !== system) return;
      client.removeEventListener("engraved", check);
      resolve(detail.time);
    };
    client.addEventListener("engraved", check);
  });
  const start = performance.now();
  const event = await client.edit(kind, values);
  return event && event.kind === "edit" ? (await drawn) - start : null;
}"""
LAG = """(seconds) => new Promise((resolve) => {
  const { player } = window.entourage;
  const cursor = document.querySelector("#scan .cursor");
  const lags = [];
  const timer = setInterval(() => {
    const drawn = Number(cursor.dataset.quarter);
    if (Number.isFinite(drawn)) lags.push(Math.abs(player.position() - drawn) * (60 / player.tempo));
  }, 13);
  setTimeout(() => { clearInterval(timer); resolve(lags); }, 1000 * seconds);
})"""


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reading", type=Path, help="output folder of `entourage read`")
    parser.add_argument("--source", type=Path, required=True, help="folder of the pages that were read")
    parser.add_argument("--corrections", type=int, default=40)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f} before the start")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "reading"
        shutil.copytree(arguments.reading, copy, ignore=shutil.ignore_patterns("serve", "corrected"))
        shown(copy, arguments.source, arguments.corrections)
        killed(copy, arguments.source, arguments.kills)
        fuzzed(copy, arguments.source, arguments.requests)


def serve(reading: Path, source: Path) -> AbstractContextManager[Server]:
    """Serve a reading until the block ends."""
    return run_server("serve", str(reading), "--source", str(source))


def shown(reading: Path, source: Path, n_corrections: int) -> None:
    """Measure the page in Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    start = time.perf_counter()
    with serve(reading, source) as server, sync_playwright() as playwright:
        command = time.perf_counter() - start
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        start = time.perf_counter()
        page.goto(f"http://127.0.0.1:{server.connection.port}/?token={server.token}")
        while not page.evaluate(OPENED):
            assert time.perf_counter() < start + 120, (
                "the page does not open; expected scans of the reading in --source"
            )
            page.wait_for_timeout(10)
        state = json.loads(server.request("GET", "scores/0")[1])
        print(
            f"{len(state['pages'])} pages, {len(state['measures'])} measures: address {command:.1f} s after the "
            f"command, scan and engraving of a page {time.perf_counter() - start:.2f} s after the address is opened"
        )
        _playback(page)
        _corrections(page, state, n_corrections)
        _undo(server, state)
        browser.close()


def _playback(page: Any) -> None:
    page.keyboard.press("Space")
    while not page.evaluate("document.querySelector('#scan .cursor')?.getAttribute('visibility') === 'visible'"):
        page.wait_for_timeout(10)
    lags = 1000 * np.array(page.evaluate(LAG, SECONDS))
    page.keyboard.press("Space")
    median, high = np.quantile(lags, [0.5, 0.95])
    print(
        f"drawn cursor behind the audio clock during {SECONDS:.0f} s: median {median:.0f} ms, p95 {high:.0f} ms, "
        f"largest {lags.max():.0f} ms ({len(lags)} samples; software rendering)"
    )


def _corrections(page: Any, state: dict[str, Any], n: int) -> None:
    """Correct notes of the first page and measure the time until the system is drawn again."""
    times: dict[str, list[float]] = {"pitch": [], "duration": []}
    n_measures = sum(row[0] == 0 for row in state["measures"])
    for number in range(n):
        kind = ("pitch", "duration")[number % 2]
        page.evaluate("(m) => window.entourage.client.selectMeasure(m)", number * 7 % n_measures)
        page.evaluate("async () => { await window.entourage.client.step(1); }")
        value = page.evaluate("window.entourage.client.note?.[2].value")
        if value is None:
            continue
        other = "eighth" if value == "quarter" else "quarter"
        values = {"steps": 1} if kind == "pitch" else {"value": other, "dots": 0, "tuplet": None}
        milliseconds = page.evaluate(CORRECT, [kind, values])
        if milliseconds is not None:
            times[kind].append(milliseconds)
    for kind, seconds in times.items():
        median, high = np.quantile(seconds, [0.5, 0.95])
        timing = f"median {median:.0f} ms, p95 {high:.0f} ms, {len(seconds)} times"
        print(f"{kind} corrected to measure engraved again: {timing}")


def _undo(server: Server, state: dict[str, Any]) -> None:
    """Make and undo corrections of all kinds; pages, measures and engravings must be as before."""
    generator = random.Random(1)
    server.connection.close()  # the server has ended it meanwhile; the next request opens another one
    before = _content(server)
    made = 0
    while made < UNDONE:
        status, answer = _random_edit(server, generator, len(state["measures"]), is_valid=True)
        made += status == 200 and json.loads(answer)["kind"] == "edit"
    assert _content(server) != before
    for _ in range(UNDONE):
        version = json.loads(server.request("GET", "scores/0")[1])["version"]
        assert server.request("POST", "scores/0/undo", {"version": version})[0] == 200
    parts = zip(("measures", "notes and symbols", "engravings"), before, _content(server), strict=True)
    different = [name for name, old, new in parts if old != new]
    assert not different, f"undo: other {', '.join(different)}"
    print(f"{UNDONE} corrections and {UNDONE} undos: all notes, symbols, measures and engravings as before, bit by bit")


def _content(server: Server) -> list[Any]:
    state = json.loads(server.request("GET", "scores/0")[1])
    pages = [json.loads(server.request("GET", f"scores/0/pages/{page}")[1]) for page in range(len(state["pages"]))]
    systems = [
        json.loads(server.request("GET", f"scores/0/systems/{k}")[1])["svg"] for k in range(len(state["systems"]))
    ]
    return [state["measures"], [[page["notes"], page["symbols"]] for page in pages], systems]


def _random_edit(server: Server, generator: random.Random, n_measures: int, *, is_valid: bool) -> tuple[int, bytes]:
    """Send a correction: one that is probably valid, or any values."""
    version = json.loads(server.request("GET", "scores/0")[1])["version"] if is_valid else 0
    body: dict[str, Any] = {"kind": generator.choice(KINDS), "version": version}
    if is_valid:
        body |= {"part": 0, "measure": generator.randrange(n_measures), "chord": generator.randrange(4), "note": 0}
        body |= {"steps": generator.choice([-2, -1, 1, 2]), "accidental": generator.choice(["", "sharp", "flat"])}
        body |= {"value": generator.choice(["eighth", "quarter", "half"]), "dots": 0, "tuplet": None}
        body |= {"voice": generator.choice([1, 2]), "key": generator.randrange(-3, 4), "meter": [3, 4, ""], "staff": 1}
        body |= {"clef": {"sign": "C", "line": 3, "octave": 0}, "page": 0, "symbol": generator.randrange(300)}
        body |= {"name": "noteheadBlackOnLine", "box": [300.0, 300.0, 320.0, 316.0]}
    else:
        body |= {name: generator.choice(VALUES) for name in generator.sample(NAMES, 5)}
    return server.request("POST", "scores/0/edit", body)


def killed(reading: Path, source: Path, n_kills: int) -> None:
    """Kill the server at random moments while it corrects; every acknowledged correction must be on disk."""
    generator = random.Random(0)
    version = n_acknowledged = 0
    for _ in range(n_kills):
        with serve(reading, source) as server:
            state = json.loads(server.request("GET", "scores/0")[1])
            assert state["version"] >= version, f"lost: version {state['version']}, acknowledged {version}"
            end = time.perf_counter() + generator.uniform(0.0, 1.0)
            try:
                while True:
                    if time.perf_counter() > end:  # killed while the request is under way
                        delayed = f"sleep {generator.uniform(0, 0.05)}; kill -9 {server.process.pid}"
                        subprocess.Popen(["sh", "-c", delayed])
                        end = float("inf")
                    status, answer = _random_edit(server, generator, len(state["measures"]), is_valid=True)
                    if status == 200:
                        version = json.loads(answer)["version"]
                        n_acknowledged += 1
            except (OSError, HTTPException):
                pass
    with serve(reading, source) as server:
        assert json.loads(server.request("GET", "scores/0")[1])["version"] >= version
    print(f"killed {n_kills} times while correcting: {n_acknowledged} acknowledged corrections, 0 lost")


def fuzzed(reading: Path, source: Path, n_requests: int) -> None:
    """Send random requests; none may fail inside the server."""
    generator = random.Random(0)
    counts: dict[int, int] = {}
    with serve(reading, source) as server:
        n_measures = len(json.loads(server.request("GET", "scores/0")[1])["measures"])
        for _ in range(n_requests):
            if generator.random() < 0.6:
                status, _ = _random_edit(server, generator, n_measures, is_valid=generator.random() < 0.2)
            else:
                method, path = generator.choice(["GET", "POST", "PUT", "DELETE"]), generator.choice(PATHS)
                body = generator.randbytes(50) if generator.random() < 0.3 else {"version": generator.choice(VALUES)}
                status, _ = server.request(method, path, body)
            counts[status] = counts.get(status, 0) + 1
    shown = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
    print(f"{n_requests} random requests with the token; answers by status: {shown}")
    assert max(counts, default=0) < 500


if __name__ == "__main__":
    main()

"""Panning the map of 50,000 items in Chromium: script per frame and frames per second.

    python -m benchmarks.serve_map   # two minutes; needs Playwright and Chromium; WebGL is rendered in software

The pointer drags the map for ten seconds, after twenty labels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.machine import machine
from benchmarks.serve_label import mixture, serve

FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
SECONDS = 10.0
# Time of every frame, and of the script that draws it.
RECORD = """() => {
  const { map } = window.entourage.views;
  window.frames_ = []; window.scripts_ = [];
  const record = (now) => {
    window.frames_.push(now);
    if (map.frameSeconds) window.scripts_.push(map.frameSeconds);
    requestAnimationFrame(record);
  };
  requestAnimationFrame(record);
}"""


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    n = parser.parse_args().items
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f} before the start")
    points, classes = mixture(n)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "features.npy"
        np.save(source, points)
        with serve(source, Path(folder) / "out") as server:
            state = server.state()
            while state["phase"] != "ready":
                state = server.state(state["stage"])
            for item in range(20):
                server.request("POST", "label", {"items": [item], "label": f"class {classes[item]}"})
            while not (Path(folder) / "out" / "serve" / "map.npy").exists():  # the arrangement is complete
                time.sleep(0.2)
            address = f"http://127.0.0.1:{server.connection.port}/?token={server.token}"
            frames, scripts = _pan(address, n)
    steps = np.diff(frames) / 1000
    milliseconds = 1000 * np.quantile(scripts, [0.5, 0.95])
    print(
        f"panning {n:,} items for {SECONDS:.0f} s: script per frame median {milliseconds[0]:.1f} ms, "
        f"p95 {milliseconds[1]:.1f} ms; {1 / np.mean(steps):.0f} frames per second in software rendering"
    )


def _pan(address: str, n: int) -> tuple[list[float], list[float]]:
    """Drag the map; return the times of all frames in milliseconds, and the durations of the script in seconds."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page: Any = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(address)
        page.wait_for_selector("#tab-map")
        page.locator("#tab-map").click()
        while page.evaluate("window.entourage?.views.map.codes?.length") != n:
            page.wait_for_timeout(100)
        box = page.locator(".map canvas").first.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.evaluate(RECORD)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            angle = 3 * (end - time.monotonic())
            page.mouse.move(x + 150 * np.cos(angle), y + 150 * np.sin(angle))
        frames, scripts = page.evaluate("[window.frames_, window.scripts_]")
        browser.close()
    return frames, scripts


if __name__ == "__main__":
    main()

"""Labelling in the browser with 50,000 items: first screen, from key to disk, from key to new labels, memory; safety.

    python -m benchmarks.serve_label               # a few minutes on two cores
    python -m benchmarks.serve_label --items 1000000 --labels 20

A client sends the requests of the page to `entourage label FEATURES --serve`, in a separate process. Features are a
mixture of Gaussians, 64 dimensions, ten classes of six clusters each. Afterwards the server is killed while it labels,
and receives random requests.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import machine

CLASSES, CLUSTERS, DIMENSIONS = 10, 6, 64
SMALL = 2000  # items of the checks of safety
PATHS = ("state", "items", "map", "results", "picture/1", "download/x", "label", "undo", "classes", "")
NAMES = ("items", "label", "expected", "keep", "skip", "version", "name", "to", "class", "kind", "q", "ids", "limit")
VALUES = (
    None,
    True,
    -1,
    0,
    3,
    10**30,
    1.5,
    "",
    "cat",
    "\ud800",
    "\0",
    "<b>",
    "../x",
    [],
    [0],
    [-1],
    ["a"],
    {},
    {"0": 1},
)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f} before the start")
    with tempfile.TemporaryDirectory() as folder:
        speed(Path(folder), arguments.items, arguments.labels)
        killed(Path(folder), arguments.kills)
        fuzzed(Path(folder), arguments.requests)


def mixture(n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points, shape (n, 64), and their classes, shape (n,)."""
    generator = np.random.default_rng(0)
    classes = generator.integers(0, CLASSES, n)
    centres = generator.normal(size=(CLASSES, CLUSTERS, DIMENSIONS))
    spread = np.linspace(2.2, 0.2, DIMENSIONS)
    points = centres[classes, generator.integers(0, CLUSTERS, n)] + generator.normal(size=(n, DIMENSIONS)) * spread
    return points.astype(np.float32), classes


@dataclass
class Server:
    """A running server and its client."""

    process: subprocess.Popen[str]
    token: str
    connection: HTTPConnection

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request; return status and content."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, f"/api/{path}", content, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def cpu(self) -> float:
        """Return the processor time of the server in seconds, which other programs on the machine change little."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def state(self, since: str = "") -> dict[str, Any]:
        """Return the state, as soon as it differs from `since`."""
        return dict(json.loads(self.request("GET", f"state?since={quote(since)}")[1]))


def serve(source: Path, out: Path) -> AbstractContextManager[Server]:
    """Label a source until the block ends."""
    return run_server("label", str(source), "--serve", "--out", str(out))


@contextmanager
def run_server(*arguments: str) -> Iterator[Server]:
    """Start a command that serves a page; stop it when the block ends."""
    command = [sys.executable, "-m", "entourage", *arguments]
    process = subprocess.Popen([*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(.*)", process.stdout.readline().strip())
        assert match is not None
        yield Server(process, match[2], HTTPConnection("127.0.0.1", int(match[1]), timeout=600))
    finally:
        process.kill()
        process.communicate()


def speed(folder: Path, n: int, n_labels: int) -> None:
    """Measure the time to the first screen, and that of each label."""
    points, classes = mixture(n)
    source = folder / "features.npy"
    np.save(source, points)
    for opening in ("first", "second"):
        start = time.perf_counter()
        with serve(source, folder / "speed") as server:
            state = server.state()
            address = time.perf_counter() - start
            while not state["suggestions"]:
                state = server.state(state["stage"])
            screen, cpu = time.perf_counter() - start, server.cpu()
            while state["phase"] != "ready":
                state = server.state(state["stage"])
            ready = time.perf_counter() - start
            print(
                f"{n:,} items, {opening} opening: address after {address:.1f} s, first items to label after "
                f"{screen:.1f} s ({cpu:.1f} s of processor time), graph after {ready:.1f} s"
            )
            if opening == "second":
                _label(server, classes, n_labels)


def _label(server: Server, classes: NDArray[np.int64], n_labels: int) -> None:
    state = server.state()
    while state["map"] == 0:
        state = server.state(state["stage"])
    acknowledged, shown, cpu = [], [], server.cpu()
    for _ in range(n_labels):
        item = state["suggestions"][0]["index"]
        start = time.perf_counter()
        status, content = server.request("POST", "label", {"items": [item], "label": f"class {classes[item]}"})
        assert status == 200, content
        acknowledged.append(time.perf_counter() - start)
        while state["playedVersion"] < json.loads(content)["version"]:
            state = server.state(state["stage"])
        shown.append(time.perf_counter() - start)
        while not state["suggestions"]:
            state = server.state(state["stage"])
    for name, seconds in (("key to disk", acknowledged), ("key to all labels", shown)):
        median, high = 1000 * np.quantile(seconds, [0.5, 0.95])
        print(f"{name}: median {median:.0f} ms, p95 {high:.0f} ms ({n_labels} labels)")
    print(f"processor time per label, with the next suggestions: {1000 * (server.cpu() - cpu) / n_labels:.0f} ms")
    status_file = Path(f"/proc/{server.process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status_file)
    print(f"peak memory of the server: {int(peak[1]) / 2**20:.2f} GB" if peak else "peak memory: unknown")


def killed(folder: Path, n_kills: int) -> None:
    """Kill the server at random moments while it labels; every acknowledged label must be on disk."""
    source, out = folder / "small.npy", folder / "killed"
    np.save(source, mixture(SMALL)[0])
    generator = random.Random(0)
    known: dict[str, str] = {}
    n_acknowledged = 0
    for _ in range(n_kills):
        with serve(source, out) as server:
            state = server.state()
            while not state["suggestions"]:
                state = server.state(state["stage"])
            end = time.perf_counter() + generator.uniform(0.0, 0.5)
            uncertain = ""
            try:
                while True:
                    item, label = generator.randrange(SMALL), f"class {generator.randrange(CLASSES)}"
                    if time.perf_counter() > end:  # killed while the request is under way
                        delayed = f"sleep {generator.uniform(0, 0.02)}; kill -9 {server.process.pid}"
                        subprocess.Popen(["sh", "-c", delayed])
                        end = float("inf")
                    uncertain = str(item)
                    status, _ = server.request("POST", "label", {"items": [item], "label": label})
                    assert status == 200
                    known[uncertain] = label
                    n_acknowledged += 1
            except (OSError, HTTPException):
                pass
        with (out / "known.csv").open(newline="", encoding="utf-8") as stream:
            found = {row["item"]: row["label"] for row in csv.DictReader(stream)}
        lost = [item for item, label in known.items() if item != uncertain and found.get(item) != label]
        assert not lost, f"lost: {lost}"
        known = found
    print(f"killed {n_kills} times while labelling: {n_acknowledged} acknowledged labels, 0 lost, all files complete")


def fuzzed(folder: Path, n_requests: int) -> None:
    """Send random requests; none may fail inside the server."""
    generator = random.Random(0)
    counts: dict[int, int] = {}
    with serve(folder / "small.npy", folder / "fuzzed") as server:
        state = server.state()
        while state["phase"] != "ready":
            state = server.state(state["stage"])
        for _ in range(n_requests):
            fields = {name: generator.choice(VALUES) for name in generator.sample(NAMES, 4)}
            path = generator.choice(PATHS) if generator.random() < 0.99 else "export"  # which takes a second
            method = generator.choice(["GET", "POST", "PUT", "DELETE"])
            body = generator.randbytes(50) if generator.random() < 0.1 else fields
            if method == "GET":
                path += "?" + "&".join(f"{name}={generator.randrange(-9, 9)}" for name in fields)
            status, _ = server.request(method, path, body)
            counts[status] = counts.get(status, 0) + 1
    shown = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
    print(f"{n_requests} random requests with the token; answers by status: {shown}")
    assert max(counts, default=0) < 500


if __name__ == "__main__":
    main()

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from starlette.testclient import TestClient

from entourage.serve.app import build_app
from entourage.serve.guard import Guard
from entourage.serve.labelling.routes import labelling_routes
from entourage.serve.labelling.session import LabellingSession, SessionConfig

TOKEN = "t0ken"
BASE = "http://127.0.0.1:8765"


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a function returns a true value."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.01)


def groups(n: int = 60) -> NDArray[np.float32]:
    """Three groups of points in turn."""
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0]])
    return (centres[np.arange(n) % 3] + generator.normal(size=(n, 3))).astype(np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A feature file of 60 items in three groups; one name is HTML."""
    names = [f"item {number}" for number in range(60)]
    names[7] = "<img src=x onerror=alert(1)>"
    path = tmp_path / "features.npz"
    np.savez(path, features=groups(), items=np.array(names))
    return path


@pytest.fixture
def session(source: Path, tmp_path: Path) -> Iterator[LabellingSession]:
    """A session whose graph is ready."""
    opened = LabellingSession(SessionConfig(source, tmp_path / "out"))
    opened.start()
    wait_for(lambda: opened.phase in ("ready", "failed"))
    assert opened.phase == "ready", opened.message
    wait_for(lambda: opened.snapshot is not None and opened.snapshot.number > 0)
    yield opened
    opened.close()


@pytest.fixture
def client(session: LabellingSession) -> Iterator[TestClient]:
    """A client that has the token."""
    app = Guard(build_app(labelling_routes(session)), TOKEN, "entourage-8765")
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}) as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Three images of one colour each, and a file that is not an image."""
    paths = []
    for number, color in enumerate(("red", "green", "blue")):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (300, 200), color).save(paths[-1])
    (tmp_path / "broken.png").write_bytes(b"<script>")
    return [*paths, tmp_path / "broken.png"]

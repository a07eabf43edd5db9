from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.serve.conftest import BASE, TOKEN

from entourage.serve.app import build_app
from entourage.serve.groups.routes import group_routes
from entourage.serve.groups.session import GroupsSession
from entourage.serve.guard import Guard


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """A table of 30 points in three distant groups, in turn."""
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0], [20, 0], [0, 20]])
    rows = centres[np.arange(30) % 3] + generator.normal(size=(30, 2))
    path = tmp_path / "points.csv"
    lines = [f"p{number:02d},{x:.4f},{y:.4f}" for number, (x, y) in enumerate(rows)]
    path.write_text("\n".join(["item,x,y", *lines]) + "\n")
    return path


@pytest.fixture
def folder(points: Path, tmp_path: Path) -> Path:
    """A clustering in which two of the three groups are one cluster."""
    folder = tmp_path / "groups"
    folder.mkdir()
    lines = [f"p{number:02d},{min(number % 3, 1)},{0.99 - number / 100:.4f}" for number in range(30)]
    (folder / "clusters.csv").write_text("\n".join(["item,cluster,probability", *lines]) + "\n")
    summary = {"made_by": "cluster run", "source": str(points), "model": "points"}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def session(folder: Path, points: Path) -> GroupsSession:
    """The open clustering."""
    return GroupsSession(folder, points)


@pytest.fixture
def client(session: GroupsSession) -> Iterator[TestClient]:
    """A client that has the token."""
    app = Guard(build_app(group_routes(session), "groups.html"), TOKEN, "entourage-8765")
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}) as opened:
        yield opened

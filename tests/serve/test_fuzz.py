"""Random requests with the token to every kind of page: no error within the server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from tests.serve.conftest import BASE, TOKEN
from tests.serve.scores.conftest import write_reading

from entourage.embed.index.vector_index import Index
from entourage.serve.app import build_app
from entourage.serve.groups.routes import group_routes
from entourage.serve.groups.session import GroupsSession
from entourage.serve.guard import Guard
from entourage.serve.scores.edits import KINDS
from entourage.serve.scores.routes import score_routes
from entourage.serve.scores.session import ReadingSession
from entourage.serve.search.routes import search_routes
from entourage.serve.search.session import SearchSession

REQUESTS = 400
NUMBERS: Sequence[Any] = (-1, 0, 1, 2, 7, 10**9, 10**30, 1.5, 1e308, True, None)
VALUES: Sequence[Any] = (
    *NUMBERS, "", "cat", "quarter", "sharp", "\ud800", "\0", "<b>", "../x", "eA==", [], [0], [1, 2, 3, 4], ["a"],
    [None], {}, {"0": 1}, {"0": "a"}, {"sign": "G", "line": 2}, {"sign": [], "line": 2}, [4, 4, ""], [10**30, 4, ""],
)  # fmt: skip
NAMES = (
    "kind part measure chord note steps value dots tuplet voice accidental key meter clef staff page symbol name box"
)
NAMES += " version items uploads label expected keep skip to parts image"


def read(folder: Path) -> list[Route]:
    return score_routes(ReadingSession(write_reading(folder), ["page"], [folder / "scans"]))


def index(folder: Path) -> list[Route]:
    np.save(folder / "vectors.npy", np.eye(9, dtype=np.float32))
    Index.build(folder / "vectors.npy", folder / "index")
    return search_routes(SearchSession(folder / "index"))


def clusters(folder: Path) -> list[Route]:
    lines = [f"p{number},{number % 2},0.5" for number in range(9)]
    (folder / "clusters.csv").write_text("\n".join(["item,cluster,probability", *lines]) + "\n")
    return group_routes(GroupsSession(folder))


def fill(path: str, generator: random.Random) -> str:
    """Put numbers into the parameters of a path."""
    for name in ("score", "page", "level", "column", "row", "measure", "system", "item"):
        path = path.replace(f"{{{name}:int}}", str(generator.choice([0, 0, 0, 1, 99, 10**12])))
    return path.replace("{name}", generator.choice(["found.csv", "groups.csv", "x", "..%2fx"]))


@pytest.mark.parametrize("make", [read, index, clusters])
def test_random_requests_cause_no_error_of_the_server(
    make: Callable[[Path], list[Route]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entourage.serve.changes.POLL_SECONDS", 0.0)
    generator, routes = random.Random(0), make(tmp_path)
    app = Guard(build_app(routes), TOKEN, "entourage-8765")
    counts: dict[int, int] = {}
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}) as client:
        for _ in range(REQUESTS):
            route = generator.choice(routes)
            body = {name: generator.choice(VALUES) for name in generator.sample(NAMES.split(), 6)}
            if generator.random() < 0.7:
                names = ("part", "measure", "chord", "note", "page", "symbol", "staff", "version")
                body |= {name: generator.choice([0, 0, 1]) for name in names}
                body["kind"] = generator.choice(list(KINDS))
            method = generator.choice([*(route.methods or ()), "POST"])
            query = {name: str(generator.choice(VALUES)) for name in ("since", "offset", "limit", "q", "side")}
            parameters = {key: value for key, value in query.items() if "\ud800" not in value}
            content = generator.randbytes(40) if generator.random() < 0.1 else json.dumps(body).encode()
            headers, path = {"content-type": "application/json"}, fill(route.path, generator)
            answer = client.request(method, path, params=parameters, headers=headers, content=content)
            counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
    assert max(counts) < 500
    assert counts[200] > 20

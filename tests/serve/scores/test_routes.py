from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

ONE = "/api/scores/0"
PITCH = {"kind": "pitch", "part": 0, "measure": 0, "chord": 0, "note": 0, "steps": 1}


def test_a_score_is_shown(client: TestClient) -> None:
    assert client.get("/api/scores").json()["names"] == ["page"]
    state = client.get(ONE).json()
    assert (state["version"], len(state["measures"]), state["pages"][0]["hasScan"]) == (0, 4, True)
    assert len(client.get(f"{ONE}/pages/0").json()["notes"]) == 19
    assert client.get(f"{ONE}/systems/1").json()["svg"].startswith("<svg")
    assert len(client.get(f"{ONE}/playback").json()["places"]) == 4
    assert client.get(f"{ONE}/measures/0").json()[0]["key"] == 1
    tile = client.get(f"{ONE}/tiles/0/1/0/0")
    assert tile.headers["content-type"] == "image/jpeg"
    assert "scores/main.js" in client.get("/").text


def test_corrections_are_made_undone_and_made_again(client: TestClient) -> None:
    answer = client.post(f"{ONE}/edit", json={**PITCH, "version": 0}).json()
    assert answer == {"version": 1, "kind": "edit", "description": "pitch, measure 1", "measures": [0]}
    assert client.post(f"{ONE}/undo", json={"version": 1}).json()["kind"] == "undo"
    assert client.post(f"{ONE}/redo", json={"version": 2}).json()["kind"] == "redo"
    nothing = client.post(f"{ONE}/edit", json={**PITCH, "steps": 0, "version": 3}).json()
    assert (nothing["kind"], nothing["version"]) == ("none", 3)


def test_conflicts_are_answered_with_their_status(client: TestClient) -> None:
    client.post(f"{ONE}/edit", json={**PITCH, "version": 0})
    answer = client.post(f"{ONE}/edit", json={**PITCH, "version": 0})
    assert (answer.status_code, answer.json()["version"]) == (409, 1)
    assert client.post(f"{ONE}/undo", json={"version": 0}).status_code == 409


def test_saved_files_are_downloaded(client: TestClient, reading: Path) -> None:
    assert client.get("/api/download/page.mid").status_code == 400
    files = client.post(f"{ONE}/save", json={}).json()["files"]
    assert client.get(f"/api/download/{files[1]}").content == (reading / "corrected" / files[1]).read_bytes()
    for name in ("..%2fsummary.json", "training", "%2e%2e"):
        assert client.get(f"/api/download/{name}").status_code in (400, 404)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/scores/1", 400),
        ("/api/scores/99999999999999999999", 400),
        ("/api/scores/x", 404),
        (f"{ONE}/pages/1", 400),
        (f"{ONE}/systems/2", 400),
        (f"{ONE}/measures/4", 400),
        (f"{ONE}/tiles/0/0/9/9", 400),
        (f"{ONE}/tiles/0/99999999999/0/0", 400),
    ],
)
def test_places_that_do_not_exist_are_answered_with_an_error(client: TestClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"version": 0},
        {"version": "0", "kind": "pitch"},
        {"version": 0, "kind": ["pitch"]},
        {**PITCH, "version": 0, "part": 10**30},
        {**PITCH, "version": 0, "measure": -1},
        {"version": 0, "kind": "key", "measure": 0, "key": "1"},
        {"version": 0, "kind": "clef", "part": 0, "measure": 0, "chord": 0, "staff": 1, "clef": [1]},
        {"version": 0, "kind": "meter", "measure": 0, "meter": {"a": 1}},
    ],
)
def test_invalid_corrections_change_nothing(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post(f"{ONE}/edit", json=body)
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"]
    assert client.get(ONE).json()["version"] == 0


def test_every_route_needs_the_token(client: TestClient) -> None:
    client.headers.pop("authorization")
    for path in ("/api/scores", ONE, f"{ONE}/pages/0", f"{ONE}/tiles/0/0/0/0", "/api/download/page.mid"):
        assert client.get(path).status_code == 403
    assert client.post(f"{ONE}/edit", json={**PITCH, "version": 0}).status_code == 403


def test_a_reading_is_shown_before_torch_is_loaded(reading: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from entourage.serve.scores.routes import score_routes
from entourage.serve.scores.session import ReadingSession
score = ReadingSession(Path({reading.as_posix()!r}), ["page"]).score(0)
score.state(), score.page(0), score.engraving(0), score.playback()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

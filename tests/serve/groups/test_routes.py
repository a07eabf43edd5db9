from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient


def test_groups_are_shown_and_changed(client: TestClient, folder: Path) -> None:
    state = client.get("/api/state").json()
    assert [(one["name"], one["given"]) for one in state["classes"]] == [("cluster 0", 10), ("cluster 1", 20)]
    assert (state["n"], state["pictures"], state["canSplit"]) == (30, False, True)
    version = state["version"]
    assert client.get("/api/items?class=cluster%201&limit=4&offset=2").json()["total"] == 20
    split = client.post("/api/split", json={"name": "cluster 1", "parts": 2}).json()
    assert (split["version"], split["kind"], len(split["changes"])) == (version + 1, "assign", 20)
    moved = client.post("/api/label", json={"items": [0], "label": "other", "expected": {"0": "cluster 0"}})
    assert moved.json()["version"] == version + 2
    merged = client.post("/api/classes", json={"name": "other", "to": "cluster 0"}).json()
    assert merged["kind"] == "merge"
    assert client.get("/api/download/groups.csv").content == (folder / "groups.csv").read_bytes()
    for number in range(3):
        assert client.post("/api/undo", json={"version": version + 3 + number}).json()["kind"] == "undo"
    assert client.get("/api/state").json()["classes"] == state["classes"]


def test_changes_of_another_page_are_not_lost(client: TestClient) -> None:
    body = {"items": [0], "label": "first", "expected": {"0": "cluster 0"}}
    assert client.post("/api/label", json=body).status_code == 200
    assert client.post("/api/label", json={**body, "label": "second"}).status_code == 409
    assert client.get("/api/items?class=first").json()["total"] == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("split", {"name": "cluster 0", "parts": 99}),
        ("split", {"name": "none", "parts": 2}),
        ("split", {"name": 3, "parts": 2}),
        ("classes", {"name": "none", "to": "x"}),
        ("label", {"items": [99], "label": "x"}),
    ],
)
def test_invalid_requests_are_answered_with_an_error(client: TestClient, path: str, body: dict[str, object]) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"]
    assert client.get("/api/download/summary.json").status_code == 400
    assert client.get("/api/picture/0").status_code == 400

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient
from tests.serve.conftest import wait_for

from entourage.serve.labelling.session import LabellingSession


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def played(client: TestClient) -> dict[str, Any]:
    """Return the state once the game has followed the labels."""
    state: dict[str, Any] = {}

    def follows() -> bool:
        state.update(client.get("/api/state").json())
        return bool(state["playedVersion"] == state["version"])

    wait_for(follows)
    return state


def arrays(content: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack_from("<I", content)
    return json.loads(content[4 : 4 + length]), content[4 + length :]


def label_groups(client: TestClient) -> None:
    for item, name in enumerate(("red", "green", "blue")):
        post(client, "label", items=[item], label=name, expected={str(item): ""})


def test_a_label_is_on_disk_before_the_answer_and_the_game_follows(client: TestClient, tmp_path: Path) -> None:
    for version, (item, name) in enumerate([(0, "red"), (1, "green"), (2, "blue")], start=1):
        event = post(client, "label", items=[item], label=name)
        assert (event["version"], event["changes"]) == (version, [[item, name]])
        with (tmp_path / "out" / "known.csv").open(newline="") as stream:
            assert {row["item"]: row["label"] for row in csv.DictReader(stream)}[f"item {item}"] == name
    state = played(client)
    assert [one["name"] for one in state["classes"]] == ["red", "green", "blue"]
    assert [one["given"] + one["found"] for one in state["classes"]] == [20, 20, 20]
    assert state["labelled"] == 3
    assert state["confidence"] > 0.9


def test_waiting_requests_return_as_soon_as_there_is_news(client: TestClient) -> None:
    state = played(client)
    wait_for(lambda: client.get("/api/state").json()["map"] > 2)  # the map is complete
    first = client.get("/api/state").json()["stage"]
    post(client, "label", items=[0], label="red")
    assert client.get("/api/state", params={"since": first}).json()["version"] == state["version"] + 1


def test_items_are_filtered_and_ordered(client: TestClient) -> None:
    label_groups(client)
    played(client)
    found = client.get("/api/items", params={"class": "green", "kind": "found", "limit": 7}).json()
    assert found["total"] == 19
    assert len(found["items"]) == 7
    assert all(item["index"] % 3 == 1 and item["label"] == "green" and not item["given"] for item in found["items"])
    confidences = [item["confidence"] for item in found["items"]]
    assert confidences == sorted(confidences)
    assert client.get("/api/items", params={"q": "ITEM 1", "order": "name"}).json()["total"] == 11
    assert client.get("/api/items", params={"kind": "given"}).json()["total"] == 3
    assert client.get("/api/items", params={"ids": "5,3"}).json()["items"][0]["name"] == "item 5"
    assert client.get("/api/items", params={"kind": "best"}).status_code == 400


def test_map_and_results_have_a_value_per_item(client: TestClient) -> None:
    label_groups(client)
    played(client)
    wait_for(lambda: client.get("/api/map").status_code == 200)
    header, content = arrays(client.get("/api/map").content)
    assert header["n"] == 60
    positions: NDArray[np.float32] = np.frombuffer(content, "<f4", offset=240).reshape(60, 2)
    assert np.abs(positions).max() <= 1
    header, content = arrays(client.get("/api/results").content)
    codes, kinds = np.frombuffer(content, "<u2", 60), np.frombuffer(content, "u1", 60, offset=180)
    assert [header["classes"][code] for code in codes[:3]] == ["red", "green", "blue"]
    assert kinds.sum() == 3


def test_labels_of_two_pages_are_not_lost(client: TestClient) -> None:
    post(client, "label", items=[4], label="red", expected={"4": ""})
    answer = client.post("/api/label", json={"items": [4], "label": "blue", "expected": {"4": ""}})
    assert answer.status_code == 409
    assert "'red'" in answer.json()["error"]
    assert client.post("/api/undo", json={"version": 0}).status_code == 409
    post(client, "label", items=[3, 4, 5], label="blue", keep=True)  # many at once: leaves labelled items
    labels = {
        item["index"]: item["label"] for item in client.get("/api/items", params={"ids": "3,4,5"}).json()["items"]
    }
    wait_for(lambda: played(client))
    labels = {
        item["index"]: item["label"] for item in client.get("/api/items", params={"ids": "3,4,5"}).json()["items"]
    }
    assert labels == {3: "blue", 4: "red", 5: "blue"}


def test_undo_skip_rename_and_merge(client: TestClient) -> None:
    label_groups(client)
    post(client, "label", items=[9], skip=True)
    state = played(client)
    assert state["skipped"] == 1
    assert 9 not in [item["index"] for item in state["suggestions"]]
    assert post(client, "undo", version=4)["changes"] == [[9, ""]]
    post(client, "classes", name="red", to="crimson")
    post(client, "classes", name="blue", to="green")
    assert [one["name"] for one in played(client)["classes"]] == ["crimson", "green"]
    state = played(client)
    assert [one["given"] + one["found"] for one in state["classes"]] == [20, 40]
    post(client, "undo", version=state["version"])
    assert [one["name"] for one in played(client)["classes"]] == ["crimson", "green", "blue"]


def test_export_writes_the_files_of_label(client: TestClient, tmp_path: Path) -> None:
    assert client.post("/api/export", json={}).status_code == 400  # no labels
    label_groups(client)
    played(client)
    assert post(client, "export")["items"] == 60
    with (tmp_path / "out" / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["label"] for row in rows[:6]] == ["red", "green", "blue"] * 2
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["made_by"] == "label"
    assert client.get("/api/download/labels.csv").text.startswith("item,label,confidence,given")


def test_names_are_data_not_html(client: TestClient) -> None:
    post(client, "label", items=[7], label="<script>alert(1)</script>")
    answer = client.get("/api/items", params={"ids": "7"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["items"][0]["name"] == "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("label", {"items": [60], "label": "x"}),
        ("label", {"items": [True], "label": "x"}),
        ("label", {"items": "0", "label": "x"}),
        ("label", {"items": [0], "label": "-1"}),
        ("label", {"items": [0]}),
        ("label", {"items": [0], "label": "x", "expected": [1]}),
        ("undo", {"version": "1"}),
        ("undo", {"version": 0}),
        ("classes", {"name": "absent", "to": "x"}),
        ("classes", {"name": ""}),
    ],
)
def test_invalid_requests_are_answered_with_the_expectation(
    client: TestClient, session: LabellingSession, path: str, body: dict[str, Any]
) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"]
    assert session.version == 0

"""Labels that several requests change: names and indices of items, versions, and undo."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from entourage.serve.changes import Changes, open_store, wait_for_news

NAMES = ["a.png", "b.png", "c.png"]


def test_labels_are_by_index_with_their_version(tmp_path: Path) -> None:
    store = open_store(tmp_path, "known.csv", NAMES, {"c.png": "owl"})
    assert store.names_of([2, 0]) == ["c.png", "a.png"]
    assert store.index_of("b.png") == 1
    before = store.version
    store.change(lambda labels: labels.label(["a.png"], "wren"))
    labels, classes, version = store.labels()
    assert labels == {0: "wren", 2: "owl"}
    assert set(classes) == {"owl", "wren"}
    assert version == before + 1


def test_items_that_do_not_exist_raise(tmp_path: Path) -> None:
    store = open_store(tmp_path, "known.csv", NAMES)
    for index in (3, -1):
        with pytest.raises(ValueError, match=f"index {index}; expected indices from 0 to 2"):
            store.names_of([index])


def test_names_must_be_unique(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'a\.png'; expected unique names"):
        open_store(tmp_path, "known.csv", ["a.png", "b.png", "a.png"])


def test_a_change_is_answered_with_indices_and_can_be_undone(tmp_path: Path) -> None:
    store = open_store(tmp_path, "known.csv", NAMES)
    changes = Changes(store)
    answer = json.loads(bytes(asyncio.run(changes.make(lambda labels: labels.label(["b.png"], "owl"))).body))
    assert answer["changes"] == [[1, "owl"]]
    assert answer["version"] == store.version
    undone = asyncio.run(changes.make(lambda labels: labels.undo(store.version)))
    assert json.loads(bytes(undone.body))["changes"] == [[1, ""]]
    assert store.labels()[0] == {}


def test_a_change_of_an_old_version_is_a_conflict(tmp_path: Path) -> None:
    store = open_store(tmp_path, "known.csv", NAMES)
    store.change(lambda labels: labels.label(["a.png"], "owl"))
    answer = asyncio.run(Changes(store).make(lambda labels: labels.label(["a.png"], "wren", {"a.png": ""})))
    assert answer.status_code == 409
    assert json.loads(bytes(answer.body))["version"] == store.version


def request(query: str) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "method": "GET", "headers": [], "query_string": query.encode()}, receive)


def test_waiting_ends_when_the_stage_changes() -> None:
    end = time.monotonic() + 0.1

    def stage() -> int:
        return int(time.monotonic() > end)

    assert asyncio.run(wait_for_news(request("since=0"), stage)) == "1"
    assert time.monotonic() >= end
    assert asyncio.run(wait_for_news(request(""), lambda: [2])) == "[2]"

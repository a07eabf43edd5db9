"""Answers to requests that change labels, or that wait until there is something new to show."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from entourage.serve.requests import boolean, integer, integers, json_object, text
from entourage.serve.store import SKIPPED, ConflictError, Event, LabelStore

POLL_SECONDS = 20.0
_POLL_STEP = 0.02
MAX_SHOWN = 1000  # changes of an answer
MAX_CHANGED = 100_000  # items per request


class OpenStore:
    """A store of labels that is changed by several requests at a time.

    Args:
        store: the labels.
        names: names of all items, n of them, in the order of their indices.
    """

    def __init__(self, store: LabelStore, names: Sequence[str]) -> None:
        self.store, self.names = store, names
        self._index = {name: index for index, name in enumerate(names)}
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """Version of the labels on disk."""
        return self.store.version

    def change(self, action: Callable[[LabelStore], Event]) -> Event:
        """Change labels; they are on disk when this returns."""
        with self._lock:
            return action(self.store)

    def labels(self) -> tuple[dict[int, str], list[str], int]:
        """Return the label by index of the item, the classes and the version, which belong together."""
        with self._lock:
            labels = {self._index[item]: label for item, label in self.store.labels.items()}
            return labels, list(self.store.classes), self.store.version

    def names_of(self, indices: Sequence[int]) -> list[str]:
        """Return the names of items.

        Raises:
            ValueError: an index does not exist.
        """
        return names_of(self.names, indices)

    def index_of(self, item: str) -> int:
        """Return the index of an item by its name."""
        return self._index[item]


def names_of(names: Sequence[str], indices: Sequence[int]) -> list[str]:
    """Return the names of items; a ValueError if an index does not exist."""
    for index in indices:
        if not 0 <= index < len(names):
            raise ValueError(f"items: has the index {index}; expected indices from 0 to {len(names) - 1}")
    return [names[index] for index in indices]


def open_store(folder: Path, file: str, names: Sequence[str], initial: dict[str, str] | None = None) -> OpenStore:
    """Open the labels of a folder; the history for undo is below `serve`.

    Args:
        folder: output folder of a command.
        file: name of the CSV file with the columns item and label.
        names: names of all items.
        initial: labels if the file does not exist.

    Raises:
        ValueError: two items have the same name, or the file does not contain labels of these items.
    """
    if len(set(names)) < len(names):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"{folder}: two items are named {repeated!r}; expected unique names")
    history = folder / "serve" / f"{Path(file).stem}.jsonl"
    return OpenStore(LabelStore(folder / file, history, names, initial), names)


async def wait_for_news(request: Request, stage: Callable[[], object]) -> str:
    """Wait until the stage differs from the parameter `since` of a request, and return it as JSON.

    Args:
        request: the request; without the parameter `since`, the stage is returned at once.
        stage: returns the current stage, values that change when there is something new to show.
    """
    since, end = request.query_params.get("since"), time.monotonic() + POLL_SECONDS
    while since == json.dumps(stage()) and time.monotonic() < end:
        await asyncio.sleep(_POLL_STEP)
    return json.dumps(stage())


class Changes:
    """Changes of a store by requests, and the answers to them.

    Args:
        store: an `OpenStore`, or an object with its methods.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    async def make(self, action: Callable[[LabelStore], Event]) -> Response:
        """Change labels and answer with the change; with status 409 if another page changed them meanwhile."""
        return await self.make_with(lambda: self._store.change(action))

    async def make_with(self, change: Callable[[], Event]) -> Response:
        """Answer with the change that a function makes, as `make`."""
        try:
            event = await run_in_threadpool(change)
        except ConflictError as error:
            return JSONResponse({"error": str(error), "version": self._store.version}, 409)
        changes = [[self._store.index_of(item), "" if after == SKIPPED else after] for item, _, after in event.changes]
        shown = {"version": event.version, "kind": event.kind, "undoes": event.undoes, "changes": changes[:MAX_SHOWN]}
        return JSONResponse({**shown, "classes": event.classes})

    async def undo(self, request: Request) -> Response:
        """Take back the last change."""
        version = integer(await json_object(request), "version")
        return await self.make(lambda store: store.undo(version))

    async def label(self, request: Request) -> Response:
        """Label items, remove labels, or skip items."""
        body = await json_object(request)
        indices = integers(body, "items", MAX_CHANGED)
        label = SKIPPED if boolean(body, "skip") else text(body, "label")
        names = self._store.names_of(indices)
        keep = boolean(body, "keep")
        expected = None if keep else _expected(body, dict(zip(indices, names, strict=True)))

        def change(store: LabelStore) -> Event:
            chosen = [name for name in dict.fromkeys(names) if not (keep and store.labels.get(name, ""))]
            return store.label(chosen, label, expected)

        return await self.make(change)

    async def classes(self, request: Request) -> Response:
        """Add, rename or merge classes."""
        body = await json_object(request)
        name = text(body, "name")
        if "to" in body:
            to = text(body, "to")
            return await self.make(lambda store: store.rename_class(name, to))
        return await self.make(lambda store: store.add_class(name))


def _expected(body: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, str] | None:
    """Return the labels that the page has shown, by name of the item."""
    value = body.get("expected")
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(label, str) for label in value.values()):
        raise ValueError("expected: not a table of labels; expected labels by index of the item")
    return {name: value[str(index)] for index, name in names.items() if str(index) in value}

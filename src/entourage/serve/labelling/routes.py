"""Routes of a labelling under /api: state, items, map, pictures, changes and export."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from entourage.data.image_set import ImageFiles
from entourage.serve.changes import Changes, wait_for_news
from entourage.serve.labelling.listing import list_items
from entourage.serve.labelling.session import LabellingSession, Snapshot
from entourage.serve.pictures import Pictures, picture_response
from entourage.serve.requests import json_object
from entourage.serve.store import SKIPPED

MAX_POINTS = 200_000  # of the map; more are sampled
DOWNLOADS = ("known.csv", "labels.csv", "report.html")


def labelling_routes(session: LabellingSession) -> list[Route]:
    """Return the routes of a session.

    Args:
        session: a session that was started.
    """
    api = _Api(session)
    return [
        Route("/api/state", api.state),
        Route("/api/items", api.items),
        Route("/api/map", api.map),
        Route("/api/results", api.results),
        Route("/api/picture/{item:int}", api.picture),
        Route("/api/download/{name}", api.download),
        Route("/api/label", api.changes.label, methods=["POST"]),
        Route("/api/undo", api.changes.undo, methods=["POST"]),
        Route("/api/classes", api.changes.classes, methods=["POST"]),
        Route("/api/export", api.export, methods=["POST"]),
    ]


class _Api:
    def __init__(self, session: LabellingSession) -> None:
        self.session, self.changes = session, Changes(session)
        self._pictures: Pictures | None = None

    async def state(self, request: Request) -> Response:
        """Return the state; with the parameter `since`, wait until there is another one."""
        stage = await wait_for_news(request, lambda: self.session.stage)
        return JSONResponse(await run_in_threadpool(_state, self.session, stage))

    async def items(self, request: Request) -> Response:
        """Return a page of items that are filtered by class, kind and name."""
        snapshot, names = self._snapshot(), self._names()
        page = await run_in_threadpool(list_items, names, snapshot, dict(request.query_params))
        return JSONResponse(page)

    async def map(self, request: Request) -> Response:
        """Return the positions of the items, or of a sample."""
        positions = self.session.map
        if positions is None:
            raise ValueError("map: it is still being computed; expected a session that is ready")
        shown = _sample(len(positions))
        header = {"number": self.session.map_number, "n": len(positions)}
        return _binary(header, shown.astype("<u4"), positions[shown].astype("<f4"))

    async def results(self, request: Request) -> Response:
        """Return class, confidence and kind of the items on the map."""
        snapshot = self._snapshot()
        shown = _sample(len(snapshot.codes))
        codes = np.where(snapshot.codes < 0, 0xFFFF, snapshot.codes)[shown].astype("<u2")
        confidence = np.rint(snapshot.confidence[shown] * 255).astype("u1")
        kinds = ((snapshot.given >= 0) + 2 * snapshot.skipped)[shown].astype("u1")
        return _binary({"number": snapshot.number, "classes": snapshot.classes}, codes, confidence, kinds)

    async def picture(self, request: Request) -> Response:
        """Return a picture of an item, encoded again."""
        items = self.session.items
        if self._pictures is None and items is not None and items.images is not None:
            self._pictures = Pictures(ImageFiles(items.images))
        return await picture_response(self._pictures, request)

    async def download(self, request: Request) -> Response:
        """Return a result file."""
        name = request.path_params["name"]
        path = self.session.config.out / str(name)
        if name not in DOWNLOADS or not path.is_file():
            raise ValueError(f"download: {name!r} does not exist; expected one of {', '.join(DOWNLOADS)}")
        return FileResponse(path, filename=name, content_disposition_type="attachment")

    async def export(self, request: Request) -> Response:
        """Write labels.csv, report.html and summary.json."""
        from entourage.serve.labelling.export import write_session  # loads torch: the page is shown before

        await json_object(request)
        summary = await run_in_threadpool(write_session, self.session)
        return JSONResponse({"folder": str(self.session.config.out), "items": summary["items"]})

    def _snapshot(self) -> Snapshot:
        if self.session.snapshot is None:
            raise ValueError("items: they are still being read; expected a session that is ready")
        return self.session.snapshot

    def _names(self) -> list[str]:
        return [] if self.session.items is None else self.session.items.names


def _state(session: LabellingSession, stage: str) -> dict[str, Any]:
    items, store, snapshot = session.items, session.store, session.snapshot
    state: dict[str, Any] = {
        "stage": stage,
        "phase": session.phase,
        "message": session.message,
        "title": session.config.source.name,
        "folder": str(session.config.out),
    }
    if items is None or store is None or snapshot is None:
        return {**state, "n": 0, "classes": [], "suggestions": [], "version": 0}
    labels = store.labels.copy()
    given = Counter(labels.values())
    open_items = [index for index in snapshot.suggestions if items.names[index] not in labels]
    found, sums = Counter[str](), {}
    inferred = (snapshot.codes >= 0) & (snapshot.given < 0)
    counts = np.bincount(snapshot.codes[inferred], minlength=len(snapshot.classes))
    totals = np.bincount(snapshot.codes[inferred], snapshot.confidence[inferred], minlength=len(snapshot.classes))
    for code, name in enumerate(snapshot.classes):
        found[name], sums[name] = int(counts[code]), float(totals[code])
    classes = [
        {
            "name": name,
            "given": given[name],
            "found": found[name],
            "confidence": sums[name] / found[name] if found[name] else None,
        }
        for name in list(store.classes)
    ]
    return {
        **state,
        "n": len(items.names),
        "pictures": items.images is not None,
        "unreadable": len(items.skipped),
        "version": store.version,
        "canUndo": store.can_undo,
        "classes": classes,
        "labelled": sum(given.values()) - given[SKIPPED],
        "skipped": given[SKIPPED],
        "undecided": int((snapshot.codes < 0).sum()),
        "confidence": float(snapshot.confidence[inferred].mean()) if inferred.any() else None,
        "number": snapshot.number,
        "playedVersion": snapshot.version if session.phase == "ready" else -1,
        "seconds": snapshot.seconds,
        "map": session.map_number,
        "suggestions": list_items(items.names, snapshot, {"ids": ",".join(map(str, open_items))})["items"],
    }


def _sample(n: int) -> NDArray[np.int64]:
    """Return the items on the map, ascending."""
    if n <= MAX_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, MAX_POINTS, replace=False))


def _binary(header: Mapping[str, Any], *arrays: NDArray[Any]) -> Response:
    """Return arrays after a JSON header, whose length in bytes is the first number and a multiple of 4."""
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 4)
    content = struct.pack("<I", len(encoded)) + encoded + b"".join(array.tobytes() for array in arrays)
    return Response(content, media_type="application/octet-stream")

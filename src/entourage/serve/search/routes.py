"""Routes of a search under /api: state, queries, results, pictures, and what was accepted or refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from entourage.serve.changes import Changes, wait_for_news
from entourage.serve.pictures import Pictures, picture_response
from entourage.serve.requests import integers, json_object, query_integer, text
from entourage.serve.search.session import FOUND_FILE, MAX_FOUND, SearchSession
from entourage.serve.store import check_name

_MAX_QUERY = 100  # items and pictures of a query
_FIRST = 60  # items that are shown before there is a query


def search_routes(session: SearchSession) -> list[Route]:
    """Return the routes of a search.

    Args:
        session: the open index.
    """
    api = _Api(session)
    return [
        Route("/api/state", api.state),
        Route("/api/items", api.items),
        Route("/api/picture/{item:int}", api.picture),
        Route("/api/download/{name}", api.download),
        Route("/api/upload", api.upload, methods=["POST"]),
        Route("/api/find", api.find, methods=["POST"]),
        Route("/api/label", api.changes.label, methods=["POST"]),
        Route("/api/undo", api.changes.undo, methods=["POST"]),
        Route("/api/classes", api.changes.classes, methods=["POST"]),
    ]


class _Api:
    def __init__(self, session: SearchSession) -> None:
        self.session, self.changes = session, Changes(session.labels)
        self._pictures = None if session.pictures is None else Pictures(session.pictures)

    async def state(self, request: Request) -> Response:
        """Return the state; with the parameter `since`, wait until there is another one."""
        stage = await wait_for_news(request, lambda: self.session.labels.version)
        return JSONResponse(await run_in_threadpool(_state, self.session, stage))

    async def items(self, request: Request) -> Response:
        """Return the first items whose name contains the parameter `q`."""
        query = request.query_params.get("q", "")[:200].casefold()
        limit = min(query_integer(request, "limit", _FIRST), MAX_FOUND)
        names = self.session.index.items

        def first() -> list[dict[str, Any]]:
            rows = (row for row, name in enumerate(names) if query in name.casefold())
            return self.session.describe([row for _, row in zip(range(limit), rows, strict=False)])

        return JSONResponse({"items": await run_in_threadpool(first)})

    async def picture(self, request: Request) -> Response:
        """Return a picture of an item, encoded again."""
        return await picture_response(self._pictures, request)

    async def upload(self, request: Request) -> Response:
        """Embed a picture."""
        encoded = text(await json_object(request), "image")
        return JSONResponse({"upload": await run_in_threadpool(self.session.upload, encoded)})

    async def find(self, request: Request) -> Response:
        """Return the items that are nearest to a query."""
        body = await json_object(request)
        items, uploads = integers(body, "items", _MAX_QUERY), integers(body, "uploads", _MAX_QUERY)
        name = check_name(text(body, "name"))
        found = await run_in_threadpool(self.session.find, items, uploads, name, _FIRST)
        return JSONResponse({"items": found})

    async def download(self, request: Request) -> Response:
        """Return the file of what was accepted and refused."""
        if request.path_params["name"] != FOUND_FILE:
            raise ValueError(f"download: expected {FOUND_FILE}")
        return FileResponse(self.session.folder / FOUND_FILE, filename=FOUND_FILE)


def _state(session: SearchSession, stage: str) -> dict[str, Any]:
    labels, classes, version = session.labels.labels()
    counts = Counter(labels.values())
    return {
        "stage": stage,
        "title": session.folder.name,
        "folder": str(session.folder),
        "n": len(session.index),
        "pictures": session.pictures is not None,
        "hasNetwork": session.has_network,
        "version": version,
        "canUndo": session.labels.store.can_undo,
        "classes": [{"name": name, "given": counts[name]} for name in classes],
    }

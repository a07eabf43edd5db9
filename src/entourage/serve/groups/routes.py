"""Routes of a clustering under /api: state, items, pictures, names, merges, splits and moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from entourage.serve.changes import Changes, wait_for_news
from entourage.serve.groups.session import GROUPS_FILE, GroupsSession
from entourage.serve.pictures import Pictures, picture_response
from entourage.serve.requests import integer, json_object, query_integer, text

_PAGE = 120


def group_routes(session: GroupsSession) -> list[Route]:
    """Return the routes of a clustering.

    Args:
        session: the open clustering.
    """
    api = _Api(session)
    return [
        Route("/api/state", api.state),
        Route("/api/items", api.items),
        Route("/api/picture/{item:int}", api.picture),
        Route("/api/download/{name}", api.download),
        Route("/api/label", api.changes.label, methods=["POST"]),
        Route("/api/split", api.split, methods=["POST"]),
        Route("/api/undo", api.changes.undo, methods=["POST"]),
        Route("/api/classes", api.changes.classes, methods=["POST"]),
    ]


class _Api:
    def __init__(self, session: GroupsSession) -> None:
        self.session, self.changes = session, Changes(session.labels)
        source = session.pictures
        self._pictures = None if source is None else Pictures(source)

    async def state(self, request: Request) -> Response:
        """Return the state; with the parameter `since`, wait until there is another one."""
        stage = await wait_for_news(request, lambda: self.session.labels.version)
        return JSONResponse(await run_in_threadpool(_state, self.session, stage, self._pictures is not None))

    async def items(self, request: Request) -> Response:
        """Return items of a group, the least probable first."""
        parameters = request.query_params
        offset, limit = query_integer(request, "offset", 0), query_integer(request, "limit", _PAGE)
        group, query = parameters.get("class"), parameters.get("q", "")[:200]
        return JSONResponse(await run_in_threadpool(self.session.list, group, offset, limit, query))

    async def picture(self, request: Request) -> Response:
        """Return a picture of an item, encoded again."""
        return await picture_response(self._pictures, request)

    async def split(self, request: Request) -> Response:
        """Split a group into parts."""
        body = await json_object(request)
        name, parts = text(body, "name"), integer(body, "parts")
        return await self.changes.make_with(lambda: self.session.split(name, parts))

    async def download(self, request: Request) -> Response:
        """Return the file of the groups."""
        if request.path_params["name"] != GROUPS_FILE:
            raise ValueError(f"download: expected {GROUPS_FILE}")
        return FileResponse(self.session.folder / GROUPS_FILE, filename=GROUPS_FILE)


def _state(session: GroupsSession, stage: str, has_pictures: bool) -> dict[str, Any]:
    labels, classes, version = session.labels.labels()
    counts, means = Counter(labels.values()), session.mean_probabilities()
    return {
        "stage": stage,
        "title": session.folder.name,
        "folder": str(session.folder),
        "n": len(session.clustering.items),
        "pictures": has_pictures,
        "canSplit": session.source is not None,
        "version": version,
        "canUndo": session.labels.store.can_undo,
        "classes": [{"name": name, "given": counts[name], "confidence": means.get(name)} for name in classes],
    }

"""Routes of a reading under /api: scores, pages, tiles of scans, engravings, playback, corrections and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from entourage.serve.changes import wait_for_news
from entourage.serve.requests import integer, json_object
from entourage.serve.scans import TILE
from entourage.serve.scores.history import Entry
from entourage.serve.scores.saving import CORRECTED, list_saved, save_score
from entourage.serve.scores.session import OpenScore, ReadingSession
from entourage.serve.store import ConflictError
from entourage.symbols import EXTENDED_IDS

_MAX_NUMBER = 10**6


def score_routes(session: ReadingSession) -> list[Route]:
    """Return the routes of a reading.

    Args:
        session: the scores.
    """
    api, one = _Api(session), "/api/scores/{score:int}"
    return [
        Route("/api/scores", api.scores),
        Route(one, api.state),
        Route(f"{one}/pages/{{page:int}}", api.page),
        Route(f"{one}/tiles/{{page:int}}/{{level:int}}/{{column:int}}/{{row:int}}", api.tile),
        Route(f"{one}/measures/{{measure:int}}", api.measure),
        Route(f"{one}/systems/{{system:int}}", api.engraving),
        Route(f"{one}/playback", api.playback),
        Route(f"{one}/edit", api.edit, methods=["POST"]),
        Route(f"{one}/undo", api.undo, methods=["POST"]),
        Route(f"{one}/redo", api.redo, methods=["POST"]),
        Route(f"{one}/save", api.save, methods=["POST"]),
        Route("/api/download/{name}", api.download),
    ]


class _Api:
    def __init__(self, session: ReadingSession) -> None:
        self.session = session

    async def scores(self, request: Request) -> Response:
        """Return the names of the scores and the classes of symbols."""
        shown = {"names": self.session.names, "folder": str(self.session.folder), "classes": sorted(EXTENDED_IDS)}
        return JSONResponse({**shown, "isDetected": self.session.is_detected})

    async def state(self, request: Request) -> Response:
        """Return the state of a score; with the parameter `since`, wait until there is another one."""
        opened = await self._open(request)
        stage = await wait_for_news(request, lambda: opened.version)
        return JSONResponse({"stage": stage, "tile": TILE, **await run_in_threadpool(opened.state)})

    async def page(self, request: Request) -> Response:
        """Return notes, rests and symbols of a page."""
        opened = await self._open(request)
        return JSONResponse(await run_in_threadpool(opened.page, _number(request, "page")))

    async def tile(self, request: Request) -> Response:
        """Return a part of a scan, encoded again."""
        opened = await self._open(request)
        numbers = [_number(request, name) for name in ("page", "level", "column", "row")]
        content = await run_in_threadpool(opened.scans.tile, *numbers)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    async def measure(self, request: Request) -> Response:
        """Return the signatures of a measure."""
        opened = await self._open(request)
        return JSONResponse(await run_in_threadpool(opened.measure, _number(request, "measure")))

    async def engraving(self, request: Request) -> Response:
        """Return the engraving of a system."""
        opened = await self._open(request)
        version, svg = await run_in_threadpool(opened.engraving, _number(request, "system"))
        return JSONResponse({"version": version, "svg": svg})

    async def playback(self, request: Request) -> Response:
        """Return tones and the path of the cursor."""
        opened = await self._open(request)
        return JSONResponse(await run_in_threadpool(opened.playback))

    async def edit(self, request: Request) -> Response:
        """Make a correction."""
        opened, body = await self._open(request), await json_object(request)
        seen = integer(body, "version")
        return await _answer(opened, lambda: opened.edit(body, seen))

    async def undo(self, request: Request) -> Response:
        """Take back the last correction."""
        opened, seen = await self._open(request), integer(await json_object(request), "version")
        return await _answer(opened, lambda: opened.undo(seen))

    async def redo(self, request: Request) -> Response:
        """Make the last correction that was taken back again."""
        opened, seen = await self._open(request), integer(await json_object(request), "version")
        return await _answer(opened, lambda: opened.redo(seen))

    async def save(self, request: Request) -> Response:
        """Write MusicXML, MIDI, JSON and training data."""
        opened = await self._open(request)
        await json_object(request)
        files = await run_in_threadpool(save_score, opened)
        folder = str(self.session.folder / CORRECTED)
        return JSONResponse({"folder": folder, "files": [file.name for file in files]})

    async def download(self, request: Request) -> Response:
        """Return a saved file."""
        name = str(request.path_params["name"])
        if name not in list_saved(self.session.folder):
            raise ValueError(f"download: {name[:80]!r} does not exist; expected a saved file")
        path = self.session.folder / CORRECTED / name
        return FileResponse(path, filename=name, content_disposition_type="attachment")

    async def _open(self, request: Request) -> OpenScore:
        return await run_in_threadpool(self.session.score, _number(request, "score"))


def _number(request: Request, name: str) -> int:
    value: Any = request.path_params[name]
    if value > _MAX_NUMBER:
        raise ValueError(f"{name}: is too large; expected at most {_MAX_NUMBER}")
    return int(value)


async def _answer(opened: OpenScore, action: Callable[[], Entry | None]) -> Response:
    """Make a change and answer with its description; with status 409 if another page was faster."""
    try:
        entry = await run_in_threadpool(action)
    except ConflictError as error:
        return JSONResponse({"error": str(error), "version": opened.version}, 409)
    shown: dict[str, Any] = {"kind": "none", "description": ""}
    if entry is not None:
        measures = sorted({int(key.split("/")[2]) for key in entry.changes if key.startswith("bar/")})
        shown = {"kind": entry.kind, "description": entry.description, "measures": measures}
    return JSONResponse({"version": opened.version, **shown})

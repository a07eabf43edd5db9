"""The application: the files of the page, the routes of the open labelling or report, and answers to errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from entourage.io.files import error_reason
from entourage.report.scripts import script_policy
from entourage.serve.guard import BodyTooLargeError

STATIC = Path(__file__).parent / "static"


def build_app(routes: Sequence[Route], page: str = "label.html") -> Starlette:
    """Build the application without its protection; see `entourage.serve.guard`.

    Args:
        routes: routes below /api.
        page: file of the page, in the folder `static`.
    """

    def index(request: Request) -> Response:
        return FileResponse(STATIC / page)

    static = StaticFiles(directory=STATIC, packages=[("entourage.report", "static")])  # modules shared with reports
    shared: list[BaseRoute] = [Route("/", index), *routes, Mount("/static", static)]
    handlers = {ValueError: _invalid, OSError: _invalid, BodyTooLargeError: _too_large, HTTPException: _failed}
    return Starlette(routes=shared, exception_handlers=handlers)


def report_routes(report: Path) -> list[Route]:
    """Return the route of a finished report.

    The report has no access to the page that shows it. Only the scripts of this project run, which are recognised by
    their digests.

    Args:
        report: an HTML file that one of the commands wrote.
    """

    def show(request: Request) -> Response:
        if not report.is_file():
            raise ValueError(f"{report.name}: no longer exists; expected a report")
        policy = f"sandbox allow-scripts; default-src 'none'; script-src {script_policy()}; "
        policy += "style-src 'unsafe-inline'; img-src data:; media-src data:"
        return FileResponse(report, media_type="text/html", headers={"content-security-policy": policy})

    return [Route("/api/report", show)]


def _invalid(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": error_reason(error)}, 400)


def _too_large(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": error_reason(error)}, 413)


def _failed(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return JSONResponse({"error": error_reason(error)}, status)

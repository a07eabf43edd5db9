"""Files, errors and reports of the application, without its protection."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from entourage.report.scripts import STATIC as SHARED
from entourage.serve.app import STATIC, build_app, report_routes
from entourage.serve.guard import BodyTooLargeError


@pytest.mark.parametrize("page", ["label.html", "scores.html", "search.html", "groups.html", "report.html"])
def test_the_root_is_the_page(page: str) -> None:
    answer = TestClient(build_app([], page)).get("/")
    assert answer.text == (STATIC / page).read_text(encoding="utf-8")
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("file", [STATIC / "page.js", STATIC / "labelling" / "label.js", SHARED / "svg.js"])
def test_modules_of_the_page_and_of_reports_are_in_one_folder(file: Path) -> None:
    name = file.relative_to(STATIC if file.is_relative_to(STATIC) else SHARED).as_posix()
    answer = TestClient(build_app([])).get(f"/static/{name}")
    assert answer.text == file.read_text(encoding="utf-8")
    assert "javascript" in answer.headers["content-type"]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("size: is 0; expected 1 or more"), 400, "size: is 0; expected 1 or more"),
        (FileNotFoundError(2, "No such file or directory", "a.png"), 400, "No such file"),
        (BodyTooLargeError(), 413, "; expected fewer"),
        (HTTPException(405, "Method Not Allowed"), 405, "Method Not Allowed"),
    ],
)
def test_errors_are_one_line_of_json_with_their_status(error: Exception, status: int, text: str) -> None:
    def fail(request: Request) -> Response:
        raise error

    answer = TestClient(build_app([Route("/api/fail", fail)])).get("/api/fail")
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert text in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_unknown_addresses_are_not_found() -> None:
    client = TestClient(build_app([]))
    for path in ("/api/none", "/static/none.js", "/none"):
        answer = client.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_reports_run_no_scripts_but_those_of_this_project(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<script>alert(1)</script>")
    client = TestClient(build_app(report_routes(tmp_path / "report.html"), "report.html"))
    assert "api/report" in client.get("/").text
    answer = client.get("/api/report")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert "allow-same-origin" not in policy
    (tmp_path / "report.html").unlink()
    assert client.get("/api/report").status_code == 400

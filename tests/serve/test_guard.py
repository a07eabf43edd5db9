from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from entourage.serve.app import build_app
from entourage.serve.guard import MAX_BODY, Guard
from entourage.serve.labelling.routes import labelling_routes
from entourage.serve.labelling.session import LabellingSession

BASE, TOKEN = "http://127.0.0.1:8765", "t0ken"


@pytest.fixture
def stranger(session: LabellingSession) -> TestClient:
    """A client without the token."""
    return TestClient(
        Guard(build_app(labelling_routes(session)), TOKEN, "entourage-8765"), base_url=BASE, follow_redirects=False
    )


def test_the_token_of_the_first_address_becomes_a_cookie(stranger: TestClient) -> None:
    assert stranger.get("/api/state").status_code == 403
    answer = stranger.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert stranger.get("/api/state").status_code == 200


@pytest.mark.parametrize("query", ["?token=", "?token=wrong", "?token=t0ke", "?x=1", "?token=%ff"])
def test_a_wrong_token_sets_no_cookie(stranger: TestClient, query: str) -> None:
    answer = stranger.get(f"/{query}")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_every_route_below_api_requires_the_token(stranger: TestClient, session: LabellingSession) -> None:
    for route in labelling_routes(session):
        path = route.path.replace("{item:int}", "0").replace("{name}", "known.csv")
        for method in route.methods or ():
            assert stranger.request(method, path).status_code == 403
            cookies = {"cookie": 'entourage-8765="wrong"; $x'}
            assert stranger.request(method, path, headers=cookies).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::1", "a@b"])
def test_other_hosts_are_rejected(client: TestClient, host: str) -> None:
    assert client.get("/api/state", headers={"host": host}).status_code == 403
    assert client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:1", "[::1]:8765"])
def test_forwarded_ports_are_accepted(client: TestClient, host: str) -> None:
    headers = {"host": host, "origin": f"http://{host}"}
    assert client.get("/api/state", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", ""])
def test_other_origins_are_rejected(client: TestClient, origin: str) -> None:
    answer = client.post("/api/label", json={"items": [0], "label": "x"}, headers={"origin": origin})
    assert answer.status_code == 403
    assert client.get("/api/state").json()["version"] == 0


def test_forms_of_other_sites_are_rejected(client: TestClient) -> None:
    body = b'{"items": [0], "label": "x"}'
    assert client.post("/api/label", content=body, headers={"content-type": "text/plain"}).status_code == 400
    headers = {"content-type": "application/json", "sec-fetch-site": "cross-site"}
    assert client.post("/api/label", content=body, headers=headers).status_code == 403


def test_large_requests_are_rejected(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    assert client.post("/api/label", content=b" " * (MAX_BODY + 1), headers=headers).status_code == 413

    def chunks() -> Iterator[bytes]:  # without a content length
        for _ in range(MAX_BODY // 65536 + 2):
            yield b" " * 65536

    assert client.post("/api/label", content=chunks(), headers=headers).status_code == 413
    assert client.get("/api/items", params={"q": "x" * 5000}).status_code == 414


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/api/download/../../etc/passwd",
        "/api/download/%2e%2e%2fsession.json",
        "/api/download/history.jsonl",
        "/api/picture/../../etc/passwd",
        "/api/picture/-1",
        "/etc/passwd",
    ],
)
def test_no_path_leads_outside(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (400, 404)


def test_answers_forbid_scripts_and_frames_of_others(client: TestClient) -> None:
    headers = client.get("/").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script-src 'self';" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_random_requests_never_fail_inside(client: TestClient) -> None:
    generator = random.Random(0)
    paths = ["state", "items", "map", "results", "picture/1", "download/x", "label", "undo", "classes", "export", "x"]
    values = [None, True, -1, 0, 3, 10**30, 1.5, "", "cat", "\ud800", "\0", "<b>", [], [0], [-1], ["a"], {}, {"0": 1}]
    names = [
        "items",
        "label",
        "expected",
        "keep",
        "skip",
        "version",
        "name",
        "to",
        "class",
        "kind",
        "q",
        "ids",
        "limit",
    ]
    for _ in range(1500):  # benchmarks/serve_label.py sends 10,000
        method = generator.choice(["GET", "POST", "PUT", "DELETE", "HEAD"])
        path = f"/api/{generator.choice(paths)}"
        if generator.random() < 0.2:
            path += "/" + "".join(generator.choices(string.printable.strip(), k=5)).replace("?", "").replace("#", "")
        fields = {name: generator.choice(values) for name in generator.sample(names, 4)}
        if method == "GET":
            query = {name: str(value).encode("utf-8", "replace").decode() for name, value in fields.items()}
            answer = client.request(method, path, params=query)
        elif generator.random() < 0.2:
            content = generator.randbytes(40)
            answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
        else:
            content = json.dumps(fields).encode()
            answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code < 500, (method, path, fields)

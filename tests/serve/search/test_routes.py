from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from tests.serve.search.conftest import COLORS, encoded, picture


def test_a_search_from_the_first_picture_to_the_file(client: TestClient) -> None:
    state = client.get("/api/state").json()
    assert (state["n"], state["pictures"], state["hasNetwork"], state["version"]) == (12, True, True, 0)
    upload = client.post("/api/upload", json={"image": encoded(picture(COLORS["red"]))}).json()["upload"]
    query = {"items": [], "uploads": [upload], "name": "red"}
    found = client.post("/api/find", json=query).json()["items"]
    assert [item["name"].split("-")[0] for item in found[:4]] == ["red"] * 4
    assert client.get(f"/api/picture/{found[0]['index']}").headers["content-type"] == "image/jpeg"
    body = {"items": [found[0]["index"]], "label": "red", "expected": {str(found[0]["index"]): ""}}
    assert client.post("/api/label", json=body).json()["version"] == 1
    again = client.post("/api/find", json=query).json()["items"]
    assert found[0]["name"] not in [item["name"] for item in again]
    assert client.get("/api/state").json()["classes"] == [{"name": "red", "given": 1}]
    assert client.get("/api/download/found.csv").text == f"item,label\n{found[0]['name']},red\n"
    assert client.post("/api/undo", json={"version": 1}).json()["kind"] == "undo"
    assert client.post("/api/label", json={**body, "expected": {str(found[0]["index"]): "blue"}}).status_code == 409


def test_items_are_filtered_by_their_names(client: TestClient) -> None:
    assert len(client.get("/api/items?limit=5").json()["items"]) == 5
    assert [item["name"] for item in client.get("/api/items?q=GREEN-2").json()["items"]] == ["green-2.png"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("find", {"items": [], "uploads": [], "name": "x"}),
        ("find", {"items": [12], "uploads": [], "name": "x"}),
        ("find", {"items": "1", "uploads": [], "name": "x"}),
        ("find", {"items": [1], "uploads": [], "name": ""}),
        ("upload", {"image": 3}),
        ("upload", {"image": "PHNjcmlwdD4="}),
        ("upload", {}),
    ],
)
def test_invalid_requests_are_answered_with_an_error(client: TestClient, path: str, body: dict[str, object]) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 400
    assert "error" in answer.json()


def test_no_other_file_is_served(client: TestClient) -> None:
    for name in ("current.json", "..%2fimages%2fred-0.png"):
        assert client.get(f"/api/download/{name}").status_code in (400, 404)
    assert client.get("/api/picture/12").status_code == 400

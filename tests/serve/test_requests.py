"""Values of requests: types, ranges and messages."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from entourage.serve.requests import boolean, integer, integers, json_object, query_integer, text


def request(body: bytes = b"", content_type: str = "application/json", query: str = "") -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "headers": headers, "query_string": query.encode()}, receive)


def test_body_is_an_object() -> None:
    found = asyncio.run(json_object(request(b'{"items": [1, 2]}', "Application/JSON; charset=utf-8")))
    assert found == {"items": [1, 2]}


@pytest.mark.parametrize(
    ("body", "content_type", "expectation"),
    [
        (b"{}", "text/plain", "Content-Type: .*; expected application/json"),
        (b"[1]", "application/json", "body: is a list; expected an object"),
        (b"{", "application/json", "body: .*; expected an object"),
        (b"[" * 100_000, "application/json", "body: .*; expected an object"),
    ],
)
def test_other_bodies_raise(body: bytes, content_type: str, expectation: str) -> None:
    with pytest.raises(ValueError, match=expectation):
        asyncio.run(json_object(request(body, content_type)))


def test_values_of_the_right_type_are_returned() -> None:
    body = {"label": "cat", "skip": True, "version": 3, "items": [0, 5]}
    assert text(body, "label") == "cat"
    assert boolean(body, "skip") is True
    assert boolean(body, "missing") is False
    assert integer(body, "version") == 3
    assert integers(body, "items", 2) == [0, 5]


@pytest.mark.parametrize(
    ("call", "expectation"),
    [
        (lambda: text({"a": 1}, "a"), "a: is 1; expected text"),
        (lambda: text({"a": "\ud800"}, "a"), "a: .*; expected valid Unicode"),
        (lambda: boolean({"a": 1}, "a"), "a: is 1; expected true or false"),
        (lambda: integer({"a": True}, "a"), "a: is True; expected a whole number"),
        (lambda: integer({}, "a"), "a: is None; expected a whole number"),
        (lambda: integers({"a": [1, 2]}, "a", 1), "a: .*; expected a list of at most 1"),
        (lambda: integers({"a": [1, False]}, "a", 2), "a: .*; expected whole numbers"),
    ],
)
def test_values_of_another_type_raise(call: Any, expectation: str) -> None:
    with pytest.raises(ValueError, match=expectation):
        call()


def test_numbers_of_the_query() -> None:
    assert query_integer(request(query="side=96"), "side", 1) == 96
    assert query_integer(request(), "side", 192) == 192
    for value in ("-1", "1e3", "\u0663", "9" * 10):
        with pytest.raises(ValueError, match=r"side: is .*; expected a whole number"):
            query_integer(request(query=f"side={value}"), "side", 1)

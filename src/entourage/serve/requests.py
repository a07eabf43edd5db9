"""Checked values of requests: anything else is answered with status 400."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request


async def json_object(request: Request) -> dict[str, Any]:
    """Return the body of a request, an object in JSON.

    Raises:
        ValueError: the content type is not application/json (which other sites cannot send without asking), or the body
            is not an object.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ValueError(f"Content-Type: is {content_type[:80]!r}; expected application/json")
    try:
        value = json.loads(await request.body())
    except ClientDisconnect as error:
        raise ValueError("body: the connection ended; expected an object in JSON") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("body: not JSON; expected an object in JSON") from error
    if not isinstance(value, dict):
        raise ValueError(f"body: is a {type(value).__name__}; expected an object in JSON")
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    """Return a string of the body.

    Raises:
        ValueError: it is missing, not a string, or not valid Unicode.
    """
    value = body.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name}: is {_shown(value)}; expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: has a surrogate; expected valid Unicode") from error
    return value


def boolean(body: Mapping[str, Any], name: str) -> bool:
    """Return a truth value of the body; False if it is missing.

    Raises:
        ValueError: it is of another type.
    """
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name}: is {_shown(value)}; expected true or false")
    return value


def integer(body: Mapping[str, Any], name: str) -> int:
    """Return a whole number of the body.

    Raises:
        ValueError: it is missing or of another type.
    """
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: is {_shown(value)}; expected a whole number")
    return value


def integers(body: Mapping[str, Any], name: str, max_length: int) -> list[int]:
    """Return a list of whole numbers of the body.

    Raises:
        ValueError: it is missing, of another type, or too long.
    """
    value = body.get(name)
    if not isinstance(value, list) or len(value) > max_length:
        raise ValueError(f"{name}: is {_shown(value)}; expected a list of at most {max_length} whole numbers")
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in value):
        raise ValueError(f"{name}: has other values than whole numbers; expected whole numbers")
    return value


def query_integer(request: Request, name: str, default: int) -> int:
    """Return a whole number of the query.

    Raises:
        ValueError: it is of another type.
    """
    value = request.query_params.get(name, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ValueError(f"{name}: is {value[:80]!r}; expected a whole number of 0 or more")
    return int(value)


def _shown(value: object) -> str:
    return repr(value)[:80]

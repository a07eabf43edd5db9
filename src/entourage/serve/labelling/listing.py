"""Filtered and ordered lists of items for the grids and the search of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from entourage.serve.labelling.session import Snapshot
from entourage.validation import check_choice

Kind = Literal["all", "given", "found", "undecided", "skipped"]
Order = Literal["unsure", "sure", "name"]
MAX_ITEMS = 500  # items per page
MAX_QUERY = 200


def list_items(names: Sequence[str], snapshot: Snapshot, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the items that a request asks for, one page of them.

    Args:
        names: names of all items, n of them.
        snapshot: labels and confidences.
        parameters: the query of the request: `ids` (indices separated by commas; all else is then ignored), or `class`
            (name of a class), `kind` (one of `Kind`), `q` (part of the item's name, ignoring case), `order` (one of
            `Order`), `offset` and `limit`.

    Returns:
        "total": number of matching items; "items": index, name, label, whether it was given, and confidence.

    Raises:
        ValueError: a parameter is not valid.
    """
    if "ids" in parameters:
        indices = _indices(parameters["ids"], len(names))
        return {"total": len(indices), "items": [_item(names, snapshot, index) for index in indices]}
    kind, order = parameters.get("kind", "all"), parameters.get("order", "unsure")
    check_choice("kind", kind, Kind)
    check_choice("order", order, Order)
    offset, limit = _count(parameters, "offset", 0), min(_count(parameters, "limit", 100), MAX_ITEMS)
    matching = np.flatnonzero(_mask(snapshot, kind, parameters.get("class")))
    query = parameters.get("q", "")[:MAX_QUERY].casefold()
    if query:
        matching = np.array([index for index in matching.tolist() if query in names[index].casefold()], dtype=np.int64)
    if order != "name":  # names are sorted
        sign = 1 if order == "unsure" else -1
        matching = matching[np.argsort(sign * snapshot.confidence[matching], kind="stable")]
    page = [_item(names, snapshot, index) for index in matching[offset : offset + limit].tolist()]
    return {"total": len(matching), "items": page}


def _mask(snapshot: Snapshot, kind: str, label: str | None) -> NDArray[np.bool_]:
    given = snapshot.given >= 0
    masks = {
        "all": np.ones_like(given),
        "given": given,
        "found": ~given & (snapshot.codes >= 0),
        "undecided": snapshot.codes < 0,
        "skipped": snapshot.skipped,
    }
    mask = masks[kind]
    if label is not None:
        code = snapshot.classes.index(label) if label in snapshot.classes else -2
        mask = mask & (np.where(given, snapshot.given, snapshot.codes) == code)
    return np.asarray(mask)


def _item(names: Sequence[str], snapshot: Snapshot, index: int) -> dict[str, Any]:
    given = int(snapshot.given[index])
    code = given if given >= 0 else int(snapshot.codes[index])
    return {
        "index": index,
        "name": names[index],
        "label": snapshot.classes[code] if code >= 0 else "",
        "given": given >= 0,
        "skipped": bool(snapshot.skipped[index]),
        "confidence": round(float(snapshot.confidence[index]), 4),
    }


def _indices(value: str, n: int) -> list[int]:
    parts = [part for part in value.split(",") if part][:MAX_ITEMS]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) < n for part in parts):
        raise ValueError(f"ids: is {value[:80]!r}; expected indices from 0 to {n - 1}, separated by commas")
    return [int(part) for part in parts]


def _count(parameters: Mapping[str, str], name: str, default: int) -> int:
    value = parameters.get(name, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ValueError(f"{name}: is {value[:80]!r}; expected a whole number of 0 or more")
    return int(value)

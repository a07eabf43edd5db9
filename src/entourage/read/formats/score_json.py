"""JSON of a score: parts, measures, chords and notes with their boxes, and the symbols of each page.

Every class of `entourage.read.score` is an object with the fields of the class; fields with their default values are
left out. Times are decimal numbers of quarter notes, boxes lists of four numbers. A JSON file read back gives an equal
score.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from entourage.io.files import error_reason, write_json
from entourage.read.score import Measure, PageInfo, Part, Score, measure_onsets

if TYPE_CHECKING:  # torch loads slowly, and a score without symbols needs none
    from entourage.detect import Detections

FORMAT = "entourage-score"
VERSION = 1
_MAX_DENOMINATOR = 100_000  # far larger than that of any time, so that decimal numbers are read back exactly
_DIGITS = 2  # after the decimal point of boxes, in pixels

T = TypeVar("T")
_NO_SYMBOLS: Sequence[Detections] = ()


def score_to_dict(score: Score, symbols: Sequence[Detections] = _NO_SYMBOLS) -> dict[str, Any]:
    """Return a score as JSON values.

    Args:
        score: the music.
        symbols: for each page of the score, its symbols in pixels of the page; none: they are left out.

    Returns:
        An object with "format", "version", "title", "pages", "parts" and "onsets": the time at which each measure
        begins, in quarter notes from the beginning.
    """
    pages = [to_json(page) for page in score.pages]
    for page, found in zip(pages, symbols, strict=False):
        page["symbols"] = symbols_to_list(found)
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": score.title,
        **({"authors": to_json(score.authors)} if score.authors else {}),
        "pages": pages,
        "parts": [to_json(part) for part in score.parts],
        "onsets": [float(onset) for onset in measure_onsets(score)],
    }


def score_from_dict(values: Mapping[str, Any]) -> Score:
    """Return the score that `score_to_dict` wrote.

    Raises:
        ValueError: the values are not those of a score, or of a later version.
    """
    if values.get("format") != FORMAT or values.get("version") != VERSION:
        found = f"{values.get('format')!r}, version {values.get('version')!r}"
        raise ValueError(f"format is {found}; expected {FORMAT!r}, version {VERSION}")
    try:
        pages = [from_json(PageInfo, {k: v for k, v in page.items() if k != "symbols"}) for page in values["pages"]]
        parts = [from_json(Part, part) for part in values["parts"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"score: {error}; expected the JSON of a score") from error
    authors = [(kind, name) for kind, name in values.get("authors", ())]
    return Score(parts, pages, values.get("title", ""), authors)


def measures_to_json(measures: Sequence[Measure]) -> list[Any]:
    """Return measures as JSON values; `measures_from_json` reads them."""
    return [to_json(measure) for measure in measures]


def measures_from_json(values: Sequence[Any]) -> list[Measure]:
    """Return the measures that `measures_to_json` wrote."""
    return [from_json(Measure, value) for value in values]


def symbols_to_list(found: Detections) -> list[dict[str, Any]]:
    """Return the symbols of a page: class, score and box of each, in order."""
    rows = zip(found.names, found.scores.tolist(), found.boxes.tolist(), strict=True)
    return [{"class": name, "score": round(score, 4), "box": _round_box(box)} for name, score, box in rows]


def to_json(value: Any) -> Any:
    """Return a value of the classes of a score as JSON values; fields with their default values are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name)) if "box" not in field.name else _boxes(value, field.name)
            for field in dataclasses.fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def _boxes(value: Any, name: str) -> Any:
    content = getattr(value, name)
    return [_round_box(box) for box in content] if name == "boxes" else _round_box(content)


def _round_box(box: Sequence[float]) -> list[float]:
    return [round(float(side), _DIGITS) for side in box]


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(value == field.default_factory())


def from_json(kind: type[T], value: Any) -> T:
    """Return a value of a class of the score from JSON values.

    Raises:
        KeyError: the class has no such field.
        TypeError, ValueError: a value has another type.
    """
    return typing.cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decode(hints[name], item) for name, item in value.items()})
    if kind is Fraction:
        return Fraction(value).limit_denominator(_MAX_DENOMINATOR)
    if origin is list:
        return [_decode(get_args(kind)[0], item) for item in value]
    if origin is tuple:
        return tuple(_decode(member, item) for member, item in zip(get_args(kind), value, strict=True))
    if origin in (Union, types.UnionType):
        member = next(member for member in get_args(kind) if member is not type(None))
        return None if value is None else _decode(member, value)
    if kind is float:
        return float(value)
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def write_score(score: Score, path: Path, symbols: Sequence[Detections] = _NO_SYMBOLS) -> None:
    """Write a score as a JSON file; the file is complete or absent.

    Args:
        score: the music.
        path: file to write.
        symbols: for each page of the score, its symbols in pixels of the page; none: they are left out.
    """
    write_json(path, score_to_dict(score, symbols), indent=None)


def read_score(path: Path) -> Score:
    """Read a score from a JSON file.

    Raises:
        ValueError: the file is missing, damaged, or not a score.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return score_from_dict(values)
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: {error_reason(error)}; expected the JSON of a score") from error

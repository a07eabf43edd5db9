"""ABC files hold any number of tunes, each of which begins at its `X:` and is a score of its own."""

from __future__ import annotations

import codecs
import re
from itertools import pairwise

_START = re.compile(r"^X:[ \t]*(\d*)", re.MULTILINE)
_KEY = re.compile(r"^K:.*$", re.MULTILINE)  # the last field of a tune's head
_FIELD = re.compile(r"^([ABCDFGHILMNORSUZmr]):.*$", re.MULTILINE)  # those that a file may give for all of its tunes
_EMPTY = re.compile(r"\n[ \t]*\n")


def split_tunes(text: str) -> list[str]:
    """The tunes of an ABC file, each with the fields that the file gives for all of them; none if there is no `X:`.

    A tune ends at the first empty line after its key, as the standard has it: what follows is prose.

    Args:
        text: the file.
    """
    text = _plain(text)
    starts = [found.start() for found in _START.finditer(text)]
    shared = text[: starts[0]] if starts else ""
    return [_tune(text[a:b], shared) for a, b in pairwise([*starts, len(text)])]


def tune_numbers(data: bytes) -> list[str]:
    """What stands after each `X:` in the bytes of an ABC file: a number, or nothing."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return _START.findall(_plain(data.decode("utf-16" if utf16 else "utf-8", errors="replace")))


def _plain(text: str) -> str:
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _tune(text: str, shared: str) -> str:
    key = _KEY.search(text)
    if key is None:
        return text
    end = _EMPTY.search(text, key.end())
    own = set(_FIELD.findall(text[: key.start()]))
    given = [found[0] + "\n" for found in _FIELD.finditer(shared) if found[1] not in own]
    return "".join([text[: key.start()], *given, text[key.start() : end.start() + 1 if end else None]])

"""ABC files hold any number of tunes, each of which begins at its `X:`, has a key, and is a score of its own."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import islice

# Both are searched for after a newline, not with ^, which takes three times as long; `_plain` puts one first.
_MARK = re.compile(r"\n(?:X:[ \t]*([0-9]{0,9})|K:)")
_FIELD = re.compile(r"\n([ABCDFGHILMNORSUZmr]):[^\n]*")  # those that a file may give for all of its tunes
_EMPTY = re.compile(r"\n[ \t]*\n")
LARGEST_HEAD = 10_000  # characters of such fields, which every tune gets


def nth_tune(text: str, k: int = 0) -> str:
    """One tune of an ABC file, with the fields that the file gives for all of them.

    A tune ends at the first empty line after its key, as the standard has it: what follows is prose.

    Args:
        text: the file.
        k: which one, from 1; 0 for the only one, which may be the whole file if there is no `X:` in it.

    Raises:
        ValueError: one line that says what is wrong with the file, which it does not name.
    """
    text = _plain(text)
    found = next(islice(_spans(text), max(k - 1, 0), None), None)
    if found is None or k == 0:
        count = sum(1 for _ in _spans(text))
        if k > count:
            raise ValueError(f"it holds {count} tunes; expected at least {k}")
        if count > 1:
            raise ValueError(f"it holds {count} tunes; expected one, as find_scores tells them apart")
        if "\nK:" not in text:
            raise ValueError("it has no K: field; expected ABC, in which every tune has a key")
    if found is None:
        return text[1:]
    _, start, key = found
    return _tune(text[start : text.find("\nX:", key) + 1 or None], key - start, text[: text.index("\nX:") + 1])


def tune_numbers(data: bytes) -> Iterator[str]:
    """What stands after each tune's `X:` in the bytes of an ABC file, one after the other: a number, or nothing."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = _plain(data.decode("utf-16" if utf16 else "utf-8", errors="replace"))
    return (number for number, _, _ in _spans(text))


def _spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Number, start and place of the key of each tune; an `X:` without a key before the next one begins none."""
    begun: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark[1] is not None:
            begun = mark
        elif begun is not None:
            yield begun[1], begun.start() + 1, mark.start() + 1
            begun = None


def _plain(text: str) -> str:
    return "\n" + text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _tune(text: str, key: int, shared: str) -> str:
    """A tune without the prose that follows, and with those shared fields that it lacks before its key."""
    own = set(_FIELD.findall("\n" + text[:key]))
    given = "".join(found[0][1:] + "\n" for found in _FIELD.finditer(shared) if found[1] not in own)
    if len(given) > LARGEST_HEAD:
        raise ValueError(f"its fields for all tunes have {len(given)} characters; expected at most {LARGEST_HEAD}")
    end = _EMPTY.search(text, key)
    return text[:key] + given + text[key : end.start() + 1 if end else None]

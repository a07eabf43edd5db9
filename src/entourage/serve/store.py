"""Labels on disk: `known.csv` and a history for undo, both written before a change is acknowledged."""

from __future__ import annotations

import csv
import json
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entourage.data.labels import read_csv_table, read_labels
from entourage.io.files import atomic_path

SKIPPED = "\0skipped"  # label of skipped items in the history; it cannot be a class and is not in known.csv
MAX_NAME = 100  # characters of the name of a class
MAX_CLASSES = 1000


class ConflictError(ValueError):
    """A change that is based on labels that another page has changed meanwhile."""


@dataclass(frozen=True)
class Event:
    """One change.

    Attributes:
        version: number of the change, from 1.
        kind: "label", "skip", "assign", "rename", "merge", "add", "undo" or "open".
        changes: items, with their labels before and after; "" is unlabelled.
        classes: names of all classes after the change, in the order of their keys.
        undoes: version of the change that this one takes back, or None.
    """

    version: int
    kind: str
    changes: list[tuple[str, str, str]]
    classes: list[str]
    undoes: int | None = None


class LabelStore:
    """Labels of items by name. Every change is on disk when the method returns.

    A killed process leaves both files complete: the history is a log whose last line may be cut off, `known.csv` is
    replaced in one step. If `known.csv` was edited by another program, its labels are used and the history starts
    again.

    Args:
        path: the file `known.csv`; it need not exist.
        history: the log of all changes; it need not exist.
        items: names of all items.
        initial: labels if `path` does not exist.

    Attributes:
        labels: label by name of the item, without the unlabelled ones; `SKIPPED` for skipped items.
        classes: names of all classes, in the order of their keys.

    Raises:
        ValueError: `path` is not a file of labels of these items.
    """

    def __init__(
        self, path: Path, history: Path, items: Sequence[str], initial: Mapping[str, str] | None = None
    ) -> None:
        self.path, self.history, self.items = path, history, frozenset(items)
        known = _read_known(path, items) if path.exists() else dict(initial or {})
        events = _read_history(history)
        # A process that was killed between the two writes leaves one change that was never acknowledged.
        candidates = (events, events[:-1])
        events = next((kept for kept in candidates if _without_skipped(_replay(kept)[0]) == known), [])
        self.labels, self.classes = _replay(events)
        self._events = events
        history.parent.mkdir(parents=True, exist_ok=True)
        self._rewrite_history()
        if not events and known:
            self._commit("open", [(item, "", label) for item, label in known.items()], sorted(set(known.values())))
        elif not path.exists():
            self._write_known()

    @property
    def version(self) -> int:
        """Number of changes so far."""
        return len(self._events)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._last_change() is not None

    def label(self, items: Sequence[str], label: str, expected: Mapping[str, str] | None = None) -> Event:
        """Label items, remove their labels, or skip them.

        Args:
            items: names of distinct items.
            label: a class, which is added if it is new; "" removes labels, `SKIPPED` skips the items.
            expected: labels that the caller has seen, by item; "" is unlabelled; None: any.

        Returns:
            The change.

        Raises:
            ConflictError: an item has another label than expected.
            ValueError: an item does not exist, or the label is not a valid name.
        """
        for item in items:
            if item not in self.items:
                raise ValueError(f"items: has {item!r}, which does not exist; expected names of items")
            seen = None if expected is None else expected.get(item)
            if seen is not None and seen != self._shown(item):
                raise ConflictError(f"{item}: was meanwhile labelled {self._shown(item)!r}; expected {seen!r}")
        classes = self.classes
        if label not in ("", SKIPPED):
            label = check_name(label)
            classes = classes if label in classes else self._with_class(label)
        changes = [(item, self.labels.get(item, ""), label) for item in items if self.labels.get(item, "") != label]
        return self._commit("skip" if label == SKIPPED else "label", changes, classes)

    def assign(self, labels: Mapping[str, str], expected: str) -> Event:
        """Give items of one class several other labels in one change.

        Args:
            labels: new label by item.
            expected: the label that all these items have.

        Returns:
            The change.

        Raises:
            ConflictError: an item has another label than expected.
            ValueError: an item does not exist, or a label is not a valid name.
        """
        classes = list(self.classes)
        for label in dict.fromkeys(labels.values()):
            if check_name(label) not in classes:
                classes = self._with_class(label, classes)
        for item in labels:
            if item not in self.items:
                raise ValueError(f"items: has {item!r}, which does not exist; expected names of items")
            if self._shown(item) != expected:
                raise ConflictError(f"{item}: was meanwhile labelled {self._shown(item)!r}; expected {expected!r}")
        changes = [(item, self.labels[item], label) for item, label in labels.items() if label != expected]
        return self._commit("assign", changes, classes)

    def add_class(self, name: str) -> Event:
        """Add a class without labels.

        Raises:
            ValueError: the name is not valid or exists.
        """
        name = check_name(name)
        if name in self.classes:
            raise ValueError(f"name: the class {name!r} exists; expected a new name")
        return self._commit("add", [], self._with_class(name))

    def rename_class(self, old: str, new: str) -> Event:
        """Rename a class; if the new name exists, merge both.

        Raises:
            ValueError: the class does not exist, or the name is not valid.
        """
        new = check_name(new)
        if old not in self.classes:
            raise ValueError(f"name: the class {old!r} does not exist; expected one of {', '.join(self.classes[:20])}")
        changes = [(item, label, new) for item, label in self.labels.items() if label == old and new != old]
        merged = new != old and new in self.classes
        classes = [new if name == old else name for name in self.classes if not (merged and name == old)]
        return self._commit("merge" if merged else "rename", changes, classes)

    def undo(self, version: int) -> Event:
        """Take back the last change that was not taken back yet.

        Args:
            version: the version that the caller has seen.

        Returns:
            The change that takes it back.

        Raises:
            ConflictError: there are newer changes than the caller has seen.
            ValueError: there is nothing to take back.
        """
        if version != self.version:
            raise ConflictError(f"version is {version}, but another page has changed labels; expected {self.version}")
        index = self._last_change()
        if index is None:
            raise ValueError("undo: no change is left; expected a change to take back")
        event = self._events[index]
        changes = [(item, after, before) for item, before, after in event.changes]
        classes = self._events[index - 1].classes if index else []
        return self._commit("undo", changes, classes, undoes=event.version)

    def _shown(self, item: str) -> str:
        label = self.labels.get(item, "")
        return "" if label == SKIPPED else label

    def _with_class(self, name: str, classes: list[str] | None = None) -> list[str]:
        classes = self.classes if classes is None else classes
        if len(classes) >= MAX_CLASSES:
            raise ValueError(f"name: there are {MAX_CLASSES} classes; expected no more")
        return [*classes, name]

    def _last_change(self) -> int | None:
        taken_back = {event.undoes for event in self._events}
        for index in range(len(self._events) - 1, -1, -1):
            event = self._events[index]
            if event.kind not in ("undo", "open") and event.version not in taken_back:
                return index
        return None

    def _commit(
        self, kind: str, changes: list[tuple[str, str, str]], classes: list[str], undoes: int | None = None
    ) -> Event:
        event = Event(self.version + 1, kind, changes, classes, undoes)
        if not changes and classes == self.classes:
            return Event(self.version, kind, [], classes)  # nothing to write
        with self.history.open("ab") as stream:
            end = stream.seek(0, os.SEEK_END)
            try:
                stream.write(_to_line(event))
                stream.flush()
                os.fsync(stream.fileno())
                before = dict(self.labels)
                _apply(self.labels, event)
                self._write_known()
            except OSError as error:
                stream.truncate(end)
                self.labels = before
                raise ValueError(f"{self.path}: cannot be written: {error.strerror}; expected free space") from error
        self.classes = classes
        self._events.append(event)
        return event

    def _write_known(self) -> None:
        def write(temporary: Path) -> None:
            with temporary.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(["item", "label"])
                writer.writerows(_without_skipped(self.labels).items())

        _replace(self.path, write)

    def _rewrite_history(self) -> None:
        """Remove a line that was cut off, and changes that `known.csv` does not contain."""
        _replace(self.history, lambda temporary: temporary.write_bytes(b"".join(map(_to_line, self._events))))


def check_name(name: str) -> str:
    """Return the name of a class without surrounding spaces.

    Raises:
        ValueError: the name is empty, too long, "-1", or has control characters.
    """
    stripped = name.strip()
    has_control = any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in stripped)
    if not stripped or len(stripped) > MAX_NAME or stripped == "-1" or has_control:
        raise ValueError(f"name is {name[:MAX_NAME]!r}; expected 1 to {MAX_NAME} printable characters other than -1")
    return stripped


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Replace a file in one step; it is on disk when this function returns."""
    with atomic_path(path) as temporary:
        write(temporary)
        _sync(temporary)
    if os.name == "posix":  # on other systems, folders cannot be opened
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_known(path: Path, items: Sequence[str]) -> dict[str, str]:
    table = read_csv_table(path)
    column = table.column("label")
    return read_labels(path, items) if any(cells[column].strip() for _, cells in table.lines) else {}


def _without_skipped(labels: Mapping[str, str]) -> dict[str, str]:
    return {item: label for item, label in labels.items() if label != SKIPPED}


def _apply(labels: dict[str, str], event: Event) -> None:
    for item, _, after in event.changes:
        if after:
            labels[item] = after
        else:
            labels.pop(item, None)


def _replay(events: list[Event]) -> tuple[dict[str, str], list[str]]:
    labels: dict[str, str] = {}
    for event in events:
        _apply(labels, event)
    return labels, list(events[-1].classes) if events else []


def _to_line(event: Event) -> bytes:
    fields = {"version": event.version, "kind": event.kind, "changes": event.changes, "classes": event.classes}
    if event.undoes is not None:
        fields["undoes"] = event.undoes
    return json.dumps(fields, ensure_ascii=True).encode() + b"\n"


def _read_history(path: Path) -> list[Event]:
    """Return the events up to the first damaged line."""
    events: list[Event] = []
    if not path.exists():
        return events
    for line in path.read_bytes().split(b"\n"):
        try:
            fields = json.loads(line)
            changes = [(str(item), str(before), str(after)) for item, before, after in fields["changes"]]
            event = Event(
                int(fields["version"]), str(fields["kind"]), changes, list(fields["classes"]), fields.get("undoes")
            )
        except (ValueError, KeyError, TypeError):
            break
        if event.version != len(events) + 1:
            break
        events.append(event)
    return events

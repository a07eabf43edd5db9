"""Changes of values on disk, with undo and redo: one line of a log for each, written before it is acknowledged."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entourage.serve.store import ConflictError

Changes = dict[str, tuple[Any, Any]]  # value before and after by key; None: there is no such value


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes:
        version: number of the line, from 1.
        kind: "edit", "undo" or "redo".
        of: version of the edit that is taken back or made again; that of the line itself for an edit.
        description: what was changed, for the user.
        changes: values before and after, by key.
    """

    version: int
    kind: str
    of: int
    description: str
    changes: Changes = field(repr=False)


class History:
    """Values by key that are changed by edits; every change is on disk when the method returns.

    A process that is killed leaves a log whose last line may be cut off; that line was never acknowledged.

    Args:
        path: the log; it need not exist.
        values: values by key before the first change, as JSON.

    Attributes:
        values: the present values.
    """

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, dict(values)
        self._changed_in: dict[str, int] = {}  # version of the last change of each key
        self._edits: dict[int, Entry] = {}
        self._done: list[int] = []
        self._undone: list[int] = []
        self.version = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        end = self._replay(path.read_bytes() if path.exists() else b"")
        with path.open("ab") as stream:
            stream.truncate(end)

    @property
    def can_undo(self) -> bool:
        """Whether there is an edit to take back."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether there is an edit that was taken back and can be made again."""
        return bool(self._undone)

    def edit(self, description: str, after: Mapping[str, Any], seen: int) -> Entry | None:
        """Change values.

        Args:
            description: what is changed, for the user.
            after: new values by key; None removes a value. Values that are equal to the present ones are ignored.
            seen: version of the values that the change is based on.

        Returns:
            The change; None if nothing changes.

        Raises:
            ConflictError: one of the values was changed after the version `seen`.
            ValueError: the log cannot be written.
        """
        changes = {key: (self.values.get(key), value) for key, value in after.items() if self.values.get(key) != value}
        self.check_unchanged(changes, seen)
        if not changes:
            return None
        return self._commit(Entry(self.version + 1, "edit", self.version + 1, description, changes))

    def check_unchanged(self, keys: Mapping[str, Any], seen: int) -> None:
        """Check that values were not changed after a version.

        Raises:
            ConflictError: one of them was.
        """
        if any(self._changed_in.get(key, 0) > seen for key in keys):
            raise ConflictError("another page has changed the same place meanwhile; expected the newest version")

    def undo(self, seen: int) -> Entry:
        """Take back the last edit.

        Raises:
            ConflictError: there are newer changes than the version `seen`.
            ValueError: there is nothing to take back.
        """
        return self._step("undo", self._done, seen)

    def redo(self, seen: int) -> Entry:
        """Make the last edit that was taken back again.

        Raises:
            ConflictError: there are newer changes than the version `seen`.
            ValueError: there is no such edit.
        """
        return self._step("redo", self._undone, seen)

    def _step(self, kind: str, edits: list[int], seen: int) -> Entry:
        if seen != self.version:
            raise ConflictError(f"version is {seen}, but another page has made changes; expected {self.version}")
        if not edits:
            raise ValueError(f"{kind}: no change is left; expected a change")
        edit = self._edits[edits[-1]]
        changes = {key: (new, old) if kind == "undo" else (old, new) for key, (old, new) in edit.changes.items()}
        return self._commit(Entry(self.version + 1, kind, edit.version, edit.description, changes))

    def _commit(self, entry: Entry) -> Entry:
        with self.path.open("ab") as stream:
            end = stream.seek(0, os.SEEK_END)
            try:
                stream.write(_to_line(entry))
                stream.flush()
                os.fsync(stream.fileno())
            except OSError as error:
                stream.truncate(end)
                raise ValueError(f"{self.path}: cannot be written: {error.strerror}; expected free space") from error
        self._apply(entry)
        return entry

    def _apply(self, entry: Entry) -> None:
        for key, (_, after) in entry.changes.items():
            if after is None:
                self.values.pop(key, None)
            else:
                self.values[key] = after
            self._changed_in[key] = entry.version
        if entry.kind == "edit":
            self._edits[entry.version] = entry
            self._done.append(entry.version)
            self._undone.clear()
        elif entry.kind == "undo":
            self._undone.append(self._done.pop())
        else:
            self._done.append(self._undone.pop())
        self.version = entry.version

    def _replay(self, log: bytes) -> int:
        """Apply the lines of a log up to the first damaged one; return where that begins."""
        end = 0
        while (newline := log.find(b"\n", end)) >= 0:
            entry = self._parse(log[end:newline])
            if entry is None:
                break
            self._apply(entry)
            end = newline + 1
        return end

    def _parse(self, line: bytes) -> Entry | None:
        """Return the entry of a line, or None if it is not the next one of this log."""
        try:
            fields = json.loads(line)
            changes: Changes = {key: (old, new) for key, (old, new) in fields["changes"].items()}
            kind, of = fields["kind"], fields["of"]
            entry = Entry(fields["version"], kind, of, fields["description"], changes)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        edits = {"edit": [entry.version], "undo": self._done, "redo": self._undone}.get(kind, [])
        is_next = entry.version == self.version + 1 and edits[-1:] == [of]
        fits = all(self.values.get(key) == old for key, (old, _) in changes.items())
        return entry if is_next and fits else None


def _to_line(entry: Entry) -> bytes:
    fields = {"version": entry.version, "kind": entry.kind, "of": entry.of, "description": entry.description}
    return json.dumps({**fields, "changes": entry.changes}, ensure_ascii=True).encode() + b"\n"

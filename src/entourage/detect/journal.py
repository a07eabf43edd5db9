"""What a run has found so far, kept page by page, so that one that was stopped goes on where it was."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from entourage.backbones.backbone import digest_weights
from entourage.data import write_json
from entourage.detect.detections import Detections
from entourage.detect.write import PageResult

STATE = ".detect"  # folder inside the output while a run is not complete
RESULTS = ("coco.json", "detections.csv", "pages.csv", "report.html", "summary.json")
_OWN = {"xml": ".xml", "drawn": ".png"}  # folders of files that each page has for itself, and their endings
_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{16}\.\w+")  # how `atomic_path` names what is not yet complete
_PLAIN = ("name", "file", "width", "height", "interline", "seconds", "note", "number")


class Journal:
    """The pages of a run that are done, in the folder that the run writes to.

    A run with the same settings goes on with what it finds there; pages of files that have changed since, or that are
    not asked for any more, are taken away. Any other run begins anew, and takes away what an earlier one has left.

    Args:
        out: the folder.
        settings: what the results depend on besides the pages, as JSON has it; without "draw" no page is drawn.
        classes: under whose names results are kept.
        files: that the run looks at, in order.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], classes: tuple[str, ...], files: Sequence[Path]) -> None:
        self.out, self.classes, self.files = out, classes, list(files)
        self._folders = tuple(name for name in _OWN if name != "drawn" or settings.get("draw"))
        self._records: dict[str, dict[int | None, Path]] = {str(file): {} for file in files}
        begun = out / STATE / "settings.json"
        if begun.is_file() and json.loads(begun.read_text(encoding="utf-8")) == settings:
            self._go_on()
            return
        _clear(out)
        write_json(begun, settings)

    def __len__(self) -> int:
        """How many pages are done."""
        return sum(map(len, self._records.values()))

    @property
    def names(self) -> set[str]:
        """The names of the pages that are done."""
        return {path.name.removesuffix(".json") for records in self._records.values() for path in records.values()}

    def done(self, file: Path) -> set[int | None]:
        """Which pages of a file are done, by number; that of a file of one page is None."""
        return set(self._records[str(file)])

    def add(self, page: PageResult) -> None:
        """Keeps a page of which all else has been written."""
        kept = {name: getattr(page, name) for name in _PLAIN}
        kept |= {name: value.tolist() for name, value in page.found.to_dict().items()}
        path = self.out / STATE / "pages" / f"{page.name}.json"
        write_json(path, {**kept, "stamp": _stamp(Path(page.file))}, indent=None)
        self._records[page.file][page.number] = path

    def pages(self) -> Iterator[PageResult]:
        """The pages that are done, in the order of their files and their numbers; one at a time is in memory."""
        for file in self.files:
            records = self._records[str(file)]
            for number in sorted(records, key=lambda n: n or 0):
                yield self._page(json.loads(records[number].read_text(encoding="utf-8")))

    def close(self) -> None:
        """Forgets all of it, for the run is complete."""
        shutil.rmtree(self.out / STATE)

    def _go_on(self) -> None:
        for leftover in [path for folder in (".", *_OWN) for path in (self.out / folder).glob(".*")]:
            if leftover.is_file() and _UNFINISHED.fullmatch(leftover.name):
                leftover.unlink()
        for path in sorted((self.out / STATE / "pages").glob("[!.]*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            file = record["file"]
            own = [self.out / folder / f"{record['name']}{_OWN[folder]}" for folder in self._folders]
            whole = all(part.is_file() for part in own)
            if whole and file in self._records and record["stamp"] == _stamp(Path(file)):
                self._records[file][record["number"]] = path
                continue
            for stale in (path, *own):
                stale.unlink(missing_ok=True)

    def _page(self, record: dict[str, Any]) -> PageResult:
        boxes = torch.tensor(record["boxes"], dtype=torch.float32).reshape(-1, 4)
        labels, scores = torch.tensor(record["labels"], dtype=torch.int64), torch.tensor(record["scores"])
        found = Detections(boxes, labels, scores.float(), self.classes)
        return PageResult(found=found, **{name: record[name] for name in _PLAIN})


def fingerprint(model: nn.Module) -> str:
    """A short text that is another for other weights."""
    return digest_weights(model.state_dict())


def _clear(out: Path) -> None:
    """Takes away what an earlier run left in the folder, lest pages of both lie side by side."""
    if (out / STATE / "settings.json").is_file() or _is_complete(out):
        for name in (*_OWN, STATE):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in RESULTS:
            (out / name).unlink(missing_ok=True)


def _is_complete(out: Path) -> bool:
    """Whether a run of this command has written the summary there, and no other command."""
    try:
        return {"list", "symbols", "skipped"} <= set(json.loads((out / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False


def _stamp(file: Path) -> list[int]:
    """What changes with a file."""
    known = file.stat()
    return [known.st_size, known.st_mtime_ns]

"""The whole way of the verb: read, represent, decide, relate, show. How a detector comes to be is in `teach`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import torch

from entourage import __version__
from entourage.data import atomic_path, progress_bar
from entourage.data.threads import count_threads, map_ahead
from entourage.detect.classes import DETECTOR_CLASSES
from entourage.detect.detector import Detector, Sight
from entourage.detect.evaluate import Evaluation, Judged, evaluate, write_evaluation
from entourage.detect.read import Sheet, list_pages, read_sheets
from entourage.detect.ready import DetectOptions, Ready
from entourage.detect.show import MOST_PICTURES, draw_detections, picture, run_sections
from entourage.detect.truth import read_truth, spread_over
from entourage.detect.words import as_list
from entourage.detect.write import PageResult, ResultFiles, open_results
from entourage.engrave.symbols import class_ids
from entourage.report import write_page

_PAGE_ERRORS = (ValueError, MemoryError, torch.OutOfMemoryError)
_MOST_AHEAD = 4  # threads; each holds up to three pages in memory
HEADER = ("page", "symbols", "interline", "seconds", "note")


@dataclass(frozen=True)
class RunJob:
    """What is to be looked at and how.

    Attributes:
        sources: images, PDF files and folders of such.
        out: the folder to write to.
        model: a file, or the name of a detector that comes with the package; None for the default.
        classes: the list under whose names results are written; "own": the network's own.
        threshold: least score of what is written.
        interline: pixels between staff lines, if they are known and the same on all pages.
        draw: whether pages are drawn.
        device: where to compute.
        progress: show a bar; None: only on a terminal.
    """

    sources: tuple[Path, ...]
    out: Path
    model: str | None = None
    classes: Judged = "own"
    threshold: float = 0.3
    interline: float | None = None
    draw: bool = True
    device: str = "auto"
    progress: bool | None = None


@dataclass(frozen=True)
class EvalJob:
    """What is to be measured and how.

    Attributes:
        data: a data set with truth, as `read_truth` takes it.
        split: "train", "val" or "test"; None for all.
        classes: the class list; None: V1 for a network of the detector's classes, its own classes for others.
        model: as in `RunJob`.
        pages: at most so many, evenly from all; None for all.
        out: folder for `evaluation.json` and `report.html`, or None.
        device: where to compute.
        progress: show a bar; None: only on a terminal.
    """

    data: str
    split: str | None = "test"
    classes: Judged | None = None
    model: str | None = None
    pages: int | None = None
    out: Path | None = None
    device: str = "auto"
    progress: bool | None = None


@dataclass
class _Course:
    """What the report needs of a run, as it goes on."""

    rows: list[tuple[str, ...]] = field(default_factory=lambda: [HEADER])
    counts: Counter[str] = field(default_factory=Counter)
    pictures: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def skip(self, name: str, error: Exception) -> None:
        """Notes that something could not be read, on one line."""
        self.skipped.append((name, " ".join(str(error).split()) or type(error).__name__))


def run_pages(job: RunJob) -> dict[str, Any]:
    """Detects on all pages and writes what was found, into the out folder.

    That is `coco.json`, `detections.csv`, `xml/`, `drawn/`, `pages.csv`, `report.html` and `summary.json`. A page that
    cannot be read is skipped and listed; the others go on.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: there is no page, no detector, or no place to write to.
    """
    if job.out.exists() and not job.out.is_dir():
        raise ValueError(f"{job.out}: is a file; expected a folder to write to")
    within = job.out.resolve()
    files = [file for file in list_pages(job.sources) if within not in file.resolve().parents]  # not an earlier run's
    if not files:
        raise ValueError(f"all pages lie in {job.out}, where results go; expected another folder to write to")
    options = DetectOptions(threshold=job.threshold, interline=job.interline)
    detector = Detector.load(job.model, job.device, options)
    _clear(job.out)
    course = _Course()
    with (
        open_results(job.out, class_numbers(job.classes, detector.classes)) as results,
        progress_bar("Detecting", len(files), job.progress) as advance,
    ):
        for file, sheet, sight in _looked(detector, files, course, advance):
            _keep(job, file, sheet, sight, results, course)
    return _finish(job, course)


def _clear(out: Path) -> None:
    """Takes away what an earlier run of this command left in the folder, lest pages of both lie side by side."""
    if (out / "summary.json").is_file():
        for name in ("xml", "drawn"):
            shutil.rmtree(out / name, ignore_errors=True)


def evaluate_data(job: EvalJob) -> Evaluation:
    """Measures a detector on a data set; see `evaluate`.

    Raises:
        ValueError: there is no such data set or detector.
    """
    pages = read_truth(job.data, job.split)
    pages = pages if job.pages is None else spread_over(pages, job.pages)
    detector = Detector.load(job.model, job.device)
    judged: Judged = job.classes or ("v1" if detector.classes == DETECTOR_CLASSES else "own")
    found = evaluate(detector, pages, judged, progress=job.progress)
    if job.out is not None:
        write_evaluation(job.out, found, f"Detection on {Path(job.data).name}")
    return found


def class_numbers(classes: Judged, own: tuple[str, ...]) -> dict[str, int]:
    """The names of a list with their numbers; those of the network's own are their places, from 1."""
    return {name: n for n, name in enumerate(own, start=1)} if classes == "own" else class_ids(classes)


def _looked(
    detector: Detector, files: Sequence[Path], course: _Course, advance: Callable[[int], None]
) -> Iterator[tuple[Path, Sheet, Sight]]:
    """The pages of files and what is on them; what goes wrong is noted. Threads measure and scale ahead of a GPU."""

    def prepare(page: tuple[Path, Sheet]) -> tuple[Path, Sheet, Ready | Exception]:
        try:
            return *page, detector.prepare(page[1].image)
        except _PAGE_ERRORS as error:
            return *page, error

    workers = 1 if detector.device.type == "cpu" else min(_MOST_AHEAD, count_threads(None))
    for file, sheet, ready in map_ahead(prepare, _sheets(files, course, advance), workers):
        try:
            if isinstance(ready, Exception):
                raise ready
            yield file, sheet, detector.see(ready)
        except _PAGE_ERRORS as error:
            course.skip(f"{file} ({sheet.name})", error)


def _sheets(files: Sequence[Path], course: _Course, advance: Callable[[int], None]) -> Iterator[tuple[Path, Sheet]]:
    """The pages of files; one that cannot be read ends its file."""
    for file in files:
        try:
            for sheet in read_sheets(file):
                yield file, sheet
        except _PAGE_ERRORS as error:
            course.skip(str(file), error)
        advance(1)


def _keep(job: RunJob, file: Path, sheet: Sheet, sight: Sight, results: ResultFiles, course: _Course) -> None:
    name = _unused(sheet.name, course.names)
    found = sight.found if job.classes == "own" else as_list(sight.found, job.classes)
    height, width = sheet.image.shape
    note = "; ".join(part for part in (sheet.note, sight.note) if part)
    page = PageResult(name, str(file), width, height, found, sight.interline, sight.seconds, note)
    results.add(page)
    course.counts.update(found.names)
    interline = "" if page.interline is None else f"{page.interline:.1f}"
    course.rows.append((name, str(len(found)), interline, f"{page.seconds:.2f}", note))
    if job.draw:
        drawn = draw_detections(sheet.image, found)
        with atomic_path(job.out / "drawn" / f"{name}.png") as temporary:
            temporary.write_bytes(cv2.imencode(".png", drawn)[1].tobytes())
        if len(course.pictures) < MOST_PICTURES:
            course.pictures.append((name, picture(drawn)))


def _finish(job: RunJob, course: _Course) -> dict[str, Any]:
    summary = {
        "entourage": __version__,
        "model": job.model or "default",
        "list": job.classes,
        "pages": len(course.rows) - 1,
        "symbols": sum(course.counts.values()),
        "classes": dict(course.counts.most_common()),
        "skipped": [{"item": name, "reason": reason} for name, reason in course.skipped],
    }
    sections = run_sections(course.rows, course.counts, course.pictures, course.skipped)
    write_page(job.out / "report.html", "Symbols on pages", f"entourage {__version__}", sections)
    with atomic_path(job.out / "summary.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _unused(name: str, names: set[str]) -> str:
    """The name, or with a number if another page has it already."""
    chosen, number = name, 1
    while chosen in names:
        number += 1
        chosen = f"{name}_{number}"
    names.add(chosen)
    return chosen

"""Pages one after another: read, measured ahead of the network, and looked at; one that fails stops no other.

The whole way of the verb: read, represent, decide, relate, show. How a detector comes to be is in `teach`.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from entourage import __version__
from entourage.compute import count_threads, map_ahead
from entourage.data.media import UnreadableImageError
from entourage.detect.detections import DETECTOR_CLASSES, count_unnamed, to_class_list
from entourage.detect.detector import Detector, PageDetections
from entourage.detect.evaluation.ground_truth import NoPagesError, read_ground_truth, subsample_evenly
from entourage.detect.evaluation.page_evaluation import (
    ClassList,
    Evaluation,
    detect_pages,
    evaluate_detections,
    page_figures,
    write_evaluation,
)
from entourage.detect.inference.results import Journal, PageResult, fingerprint, open_results, write_xml
from entourage.detect.options import InferenceOptions
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.detect.preprocessing.reading import RawPage, list_pages, page_source, read_pages
from entourage.detect.report import DISPLAY_THRESHOLD, MAX_FIGURES, draw_detections, page_figure, run_sections
from entourage.io.files import UnreadableFileError, atomic_path, check_outputs, error_reason, write_json
from entourage.io.progress import progress_bar
from entourage.report.page import pluralize, write_page
from entourage.symbols import class_ids

_PAGE_ERRORS = (ValueError, MemoryError, torch.OutOfMemoryError, cv2.error)
_MOST_AHEAD = 4  # threads; each holds up to three pages in memory

Skip = Callable[[str, Exception], None]


def look_at_all(
    detector: Detector, journal: Journal, skip: Skip, advance: Callable[[int], None]
) -> Iterator[tuple[Path, RawPage, PageDetections]]:
    """The pages of a journal's files that are not done yet, and what is on them.

    Args:
        detector: finds it. Threads measure and scale ahead of a GPU.
        journal: says which files, and what of them is done.
        skip: is told of a file or page that cannot be read, and why.
        advance: is told of every file whose pages have all been read.
    """

    def prepare(page: tuple[Path, RawPage]) -> tuple[Path, RawPage, PreparedPage | Exception]:
        try:
            return *page, detector.prepare(page[1].image)
        except _PAGE_ERRORS as error:
            return *page, error

    workers = 1 if detector.device.type == "cpu" else min(_MOST_AHEAD, count_threads(None))
    for file, raw_page, prepared in map_ahead(prepare, _sheets(journal, skip, advance), workers):
        try:
            if isinstance(prepared, Exception):
                raise prepared
            yield file, raw_page, detector.detect_prepared(prepared)
        except _PAGE_ERRORS as error:
            skip(page_source(file, raw_page.number), error)


def _sheets(journal: Journal, skip: Skip, advance: Callable[[int], None]) -> Iterator[tuple[Path, RawPage]]:
    for file in journal.files:
        done = journal.done(file)
        try:
            for raw_page in () if None in done else read_pages(file, {number for number in done if number}):
                if isinstance(raw_page, UnreadableImageError):
                    skip(raw_page.path, raw_page)  # with the number of the page
                else:
                    yield file, raw_page
        except _PAGE_ERRORS as error:
            skip(str(file), error)
        advance(1)


COMMAND = "detect run"
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
    classes: ClassList = "own"
    threshold: float = DISPLAY_THRESHOLD
    interline: float | None = None
    draw: bool = True
    device: str = "auto"
    progress: bool | None = None


@dataclass(frozen=True)
class EvalJob:
    """What is to be measured and how.

    Attributes:
        data: a data set with truth, as `read_ground_truth` takes it.
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
    classes: ClassList | None = None
    model: str | None = None
    pages: int | None = None
    out: Path | None = None
    device: str = "auto"
    progress: bool | None = None


def run_pages(job: RunJob) -> dict[str, Any]:
    """Detects on all pages and writes what was found, into the out folder.

    That is `coco.json`, `detections.csv`, `xml/`, `drawn/`, `pages.csv`, `report.html` and `summary.json`. A page that
    cannot be read, or is not there, is skipped and listed; the others go on. A run that is stopped goes on where it was
    when it is repeated; one that is interrupted from the keyboard leaves these files for the pages that are done.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: there is no page, no detector, or no place to write to.
    """
    check_outputs(job.out, command=COMMAND)
    sources, skipped = _present(job.sources)
    files = [file for file in list_pages(sources) if not _lies_in(job.out, file)]  # not an earlier run's
    if not files:
        raise ValueError(f"all pages lie in {job.out}, where results go; expected another folder to write to")
    detector = Detector.load(job.model, job.device, InferenceOptions(threshold=job.threshold, interline=job.interline))
    classes = class_numbers(job.classes, detector.classes)
    journal = Journal(job.out, _settings(job, detector), tuple(classes), files)

    def skip(name: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, UnreadableFileError) else error_reason(error)
        skipped.append((name, reason))

    try:
        with progress_bar("Detecting", len(files), job.progress) as advance:
            names = journal.names
            for file, raw_page, result in look_at_all(detector, journal, skip, advance):
                _keep(
                    job,
                    _result(job, file, raw_page, result, _unused(raw_page.name, file, files, names)),
                    raw_page,
                    journal,
                )
    except KeyboardInterrupt:
        if len(journal):
            _finish(job, journal, classes, skipped, complete=False)
            done = pluralize(len(journal), "pages")
            message = f"{job.out} holds what was found on {done} so far; the same command goes on with the others"
            warnings.warn(message, stacklevel=2)
        raise
    summary = _finish(job, journal, classes, skipped, complete=True)
    journal.close()
    return summary


def evaluate_data(job: EvalJob) -> Evaluation:
    """Measures a detector on a data set, and draws the first pages if there is a folder to write to.

    Raises:
        ValueError: there is no such data set, split or detector, or nothing of the class list.
    """
    if job.out is not None:
        check_outputs(job.out, command="detect eval")  # not among the results of a run...
        if job.out.resolve() == Path(job.data).resolve():  # ...nor among pages
            raise ValueError(f"{job.out}: holds the pages; expected another folder to write to")
    try:
        pages = read_ground_truth(job.data, job.split)
    except NoPagesError as error:
        hint = "" if job.split is None else "; --split all takes all there are"
        raise NoPagesError(f"{error}{hint}") from error
    pages = pages if job.pages is None else subsample_evenly(pages, job.pages)
    detector = Detector.load(job.model, job.device)
    class_list: ClassList = job.classes or ("v1" if detector.classes == DETECTOR_CLASSES else "own")
    seen = detect_pages(detector, pages, progress=job.progress)
    found = evaluate_detections(seen, pages, class_list)
    if job.out is not None:
        title = f"Detection on {Path(job.data).name}"
        about = {"model": job.model or "default", "data": job.data, "split": job.split or "all"}
        write_evaluation(job.out, found, title, page_figures(seen, pages, class_list), about)
    return found


def class_numbers(classes: ClassList, own: tuple[str, ...]) -> dict[str, int]:
    """The names of a list with their numbers; those of the network's own are their places, from 1."""
    return {name: n for n, name in enumerate(own, start=1)} if classes == "own" else class_ids(classes)


def _settings(job: RunJob, detector: Detector) -> dict[str, Any]:
    """What the results of a page depend on."""
    plain = {"threshold": job.threshold, "interline": job.interline, "draw": job.draw}
    return {"entourage": __version__, "model": fingerprint(detector.model), "list": job.classes, **plain}


def _result(job: RunJob, file: Path, raw_page: RawPage, result: PageDetections, name: str) -> PageResult:
    height, width = raw_page.image.shape
    found, unnamed = result.detections, 0
    if job.classes != "own":  # words are read from left to right, as the page was read
        read = found.turned(width, height) if result.upside_down else found
        listed = to_class_list(read, job.classes)
        found = listed.turned(width, height) if result.upside_down else listed
        unnamed = count_unnamed(read, job.classes)
    message = "; ".join(part for part in (raw_page.message, result.message) if part)
    measured = (result.interline, result.seconds, message)
    return PageResult(name, str(file), width, height, found, *measured, number=raw_page.number, unnamed=unnamed)


def _keep(job: RunJob, page: PageResult, raw_page: RawPage, journal: Journal) -> None:
    """Writes all of a page's own files; the journal comes last, so that what it holds is whole."""
    journal.begin(page)
    if job.draw:
        drawn = draw_detections(raw_page.image, page.detections)
        with atomic_path(job.out / "drawn" / f"{page.name}.png") as temporary:
            temporary.write_bytes(cv2.imencode(".png", drawn)[1].tobytes())
    write_xml(job.out, page)
    journal.add(page)


def _finish(
    job: RunJob, journal: Journal, classes: dict[str, int], skipped: Sequence[tuple[str, str]], *, complete: bool
) -> dict[str, Any]:
    """Writes the files that pages have in common, of all pages that are done."""
    rows: list[tuple[str, ...]] = [HEADER]
    counts: Counter[str] = Counter()
    pictures: list[tuple[str, str]] = []
    unnamed = 0
    with open_results(job.out, classes) as results:
        for page in journal.pages():
            results.add(page)
            counts.update(page.detections.names)
            unnamed += page.unnamed
            interline = "" if page.interline is None else f"{page.interline:.1f}"
            rows.append((page.name, str(len(page.detections)), interline, f"{page.seconds:.2f}", page.message))
            if job.draw and len(pictures) < MAX_FIGURES:
                drawn = np.asarray(cv2.imread(str(job.out / "drawn" / f"{page.name}.png")), dtype=np.uint8)
                pictures.append((page.name, page_figure(drawn)))
    summary = {
        "entourage": __version__,
        "made_by": COMMAND,
        "model": job.model or "default",
        "list": job.classes,
        "draw": job.draw,
        "complete": complete,
        "pages": len(rows) - 1,
        "symbols": sum(counts.values()),
        "unnamed": unnamed,
        "empty": sum(row[1] == "0" for row in rows[1:]),
        "classes": dict(counts.most_common()),
        "skipped": [{"item": name, "reason": reason} for name, reason in skipped],
    }
    write_page(
        job.out / "report.html",
        "Symbols on pages",
        f"entourage {__version__}",
        run_sections(rows, counts, pictures, skipped),
    )
    write_json(job.out / "summary.json", summary)
    return summary


def _present(sources: Sequence[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    """The sources that are there, and those that are not with the reason; all, if none is, for whoever lists them."""
    missing = [source for source in sources if not source.exists()]
    if len(missing) == len(sources):
        return list(sources), []
    return [source for source in sources if source not in missing], [(str(one), "does not exist") for one in missing]


def _lies_in(folder: Path, file: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(file)).parents  # resolve() fails at links in a ring


def _unused(name: str, file: Path, files: Sequence[Path], names: set[str]) -> str:
    """The name; if another page has it already, with the suffix that tells its file from others, or with a number."""
    chosen, number = name, 1
    if name in names and any(one.stem == file.stem and one.suffix != file.suffix for one in files):
        name = chosen = f"{name}_{file.suffix.lower().removeprefix('.')}"
    while chosen in names:
        number += 1
        chosen = f"{name}_{number}"
    names.add(chosen)
    return chosen

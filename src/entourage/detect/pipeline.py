"""Detection on files of pages and evaluation on data sets: the commands `detect run` and `detect eval`."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
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
from entourage.detect.inference.results import (
    PageRecords,
    PageResult,
    model_digest,
    open_records,
    open_results,
    write_xml,
)
from entourage.detect.options import InferenceOptions
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.detect.preprocessing.reading import RawPage, list_pages, page_source, read_page, read_pages
from entourage.detect.report import DISPLAY_THRESHOLD, MAX_FIGURES, boxes_figure, draw_detections, run_sections
from entourage.io.files import UnreadableFileError, atomic_path, check_outputs, error_reason, write_json
from entourage.io.progress import progress_bar
from entourage.report.page import pluralize, write_page
from entourage.symbols import class_ids

_PAGE_ERRORS = (ValueError, MemoryError, torch.OutOfMemoryError, cv2.error)
_MAX_WORKERS = 4  # threads; each holds up to three pages in memory

Skip = Callable[[str, Exception], None]


def detect_files(
    detector: Detector, records: PageRecords, skip: Skip, advance: Callable[[int], None]
) -> Iterator[tuple[Path, RawPage, PageDetections]]:
    """Detect the objects on all pages that are not finished; threads read and scale pages ahead of a GPU.

    Args:
        detector: the detector.
        records: files of the run and their finished pages.
        skip: called with the name of each file or page that cannot be processed, and the error.
        advance: called with 1 for each file whose pages have all been read.

    Yields:
        The file, the page and its detections.
    """

    def prepare(page: tuple[Path, RawPage]) -> tuple[Path, RawPage, PreparedPage | Exception]:
        try:
            return *page, detector.prepare(page[1].image)
        except _PAGE_ERRORS as error:
            return *page, error

    workers = 1 if detector.device.type == "cpu" else min(_MAX_WORKERS, count_threads(None))
    for file, raw_page, prepared in map_ahead(prepare, _unfinished_pages(records, skip, advance), workers):
        try:
            if isinstance(prepared, Exception):
                raise prepared
            yield file, raw_page, detector.detect_prepared(prepared)
        except _PAGE_ERRORS as error:
            skip(page_source(file, raw_page.number), error)


def _unfinished_pages(
    records: PageRecords, skip: Skip, advance: Callable[[int], None]
) -> Iterator[tuple[Path, RawPage]]:
    """Yield the pages that are not finished; the arguments are those of `detect_files`."""
    for file in records.files:
        done = records.done(file)
        try:
            for raw_page in () if None in done else read_pages(file, {number for number in done if number}):
                if isinstance(raw_page, UnreadableImageError):
                    skip(raw_page.path, raw_page)  # the path contains the number of the page
                else:
                    yield file, raw_page
        except _PAGE_ERRORS as error:
            skip(str(file), error)
        advance(1)


COMMAND = "detect run"
HEADER = ("page", "symbols", "interline", "seconds", "note")


def run_detection(
    sources: Sequence[Path],
    out: Path,
    *,
    model: str | None = None,
    class_list: ClassList = "own",
    threshold: float = DISPLAY_THRESHOLD,
    interline: float | None = None,
    draw: bool = True,
    device: str = "auto",
    progress: bool | None = None,
) -> dict[str, Any]:
    """Detect the symbols of all pages and write the results into a folder.

    The results are `coco.json`, `detections.csv`, `xml/`, `drawn/`, `pages.csv`, `report.html` and `summary.json`. A
    page that is missing or cannot be read is skipped and listed. An interrupted run resumes when it is repeated with
    the same arguments; after an interrupt from the keyboard the files contain the pages that are complete.

    Args:
        sources: images, PDF files and folders of these.
        out: the folder to write to.
        model: a file, or the name of an included detector; None: the default detector.
        class_list: class list of the results; "own": the classes of the detector.
        threshold: minimum score of the detections that are written.
        interline: pixels between staff lines if known and the same on all pages; None: estimated.
        draw: whether pages are drawn with their detections.
        device: "auto", "cpu", "cuda" or another torch device.
        progress: show a bar; None: only on a terminal.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: there is no page, the detector does not exist, or `out` is not writable.
    """
    check_outputs(out, command=COMMAND)
    existing, skipped = _existing(sources)
    files = [file for file in list_pages(existing) if not _lies_in(out, file)]  # without those of an earlier run
    if not files:
        raise ValueError(f"{out}: contains all pages; expected another folder to write to")
    detector = Detector.load(model, device, InferenceOptions(threshold=threshold, interline=interline))
    ids = category_ids(class_list, detector.classes)
    inputs = {"threshold": threshold, "interline": interline, "draw": draw}
    config = {"entourage": __version__, "model": model_digest(detector.model), "list": class_list, **inputs}
    about = {"model": model or "default", "list": class_list, "draw": draw}

    def skip(name: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, UnreadableFileError) else error_reason(error)
        skipped.append((name, reason))

    with open_records(out, config, tuple(ids), files) as records:
        try:
            with progress_bar("Detecting", len(files), progress) as advance:
                names = records.names
                for file, raw_page, result in detect_files(detector, records, skip, advance):
                    name = _unique_name(raw_page.name, file, files, names)
                    page = _page_result(name, file, raw_page, result, class_list)
                    _save_page(out, page, raw_page, records, draw=draw)
        except KeyboardInterrupt:
            if len(records):
                _write_results(out, records, ids, skipped, about, complete=False)
                done = pluralize(len(records), "pages")
                warnings.warn(f"{out} contains the results of {done}; repeat the command to resume", stacklevel=2)
            raise
        summary = _write_results(out, records, ids, skipped, about, complete=True)
        records.delete_state()
    return summary


def evaluate_dataset(
    data: str,
    *,
    split: str | None = "test",
    class_list: ClassList | None = None,
    model: str | None = None,
    max_pages: int | None = None,
    out: Path | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Evaluation:
    """Evaluate a detector on a data set and write a report.

    Args:
        data: a data set with annotations, as for `read_ground_truth`.
        split: "train", "val" or "test"; None: all pages.
        class_list: the class list; None: "v1" for detectors of classes of `DETECTOR_CLASSES`, else "own".
        model: a file, or the name of an included detector; None: the default detector.
        max_pages: maximum number of pages, spread evenly over the split; None: all.
        out: folder for `evaluation.json` and `report.html`; None: nothing is written.
        device: "auto", "cpu", "cuda" or another torch device.
        progress: show a bar; None: only on a terminal.

    Returns:
        The evaluation.

    Raises:
        ValueError: the data set, split or detector does not exist, or no page has an object of the class list.
    """
    if out is not None:
        check_outputs(out, command="detect eval")
        if out.resolve() == Path(data).resolve():
            raise ValueError(f"{out}: contains the pages; expected another folder to write to")
    try:
        pages = read_ground_truth(data, split)
    except NoPagesError as error:
        hint = "" if split is None else "; --split all evaluates all pages"
        raise NoPagesError(f"{error}{hint}") from error
    pages = pages if max_pages is None else subsample_evenly(pages, max_pages)
    detector = Detector.load(model, device)
    if class_list is None:
        class_list = "v1" if set(detector.classes) <= set(DETECTOR_CLASSES) else "own"
    predictions = detect_pages(detector, pages, progress=progress)
    evaluation = evaluate_detections(predictions, pages, class_list)
    if out is not None:
        title = f"Detection on {Path(data).name}"
        about = {"model": model or "default", "data": data, "split": split or "all"}
        write_evaluation(out, evaluation, title, page_figures(predictions, pages, class_list), about)
    return evaluation


def category_ids(class_list: ClassList, detector_classes: tuple[str, ...]) -> dict[str, int]:
    """Return the names of a class list and their numbers; numbers of the list "own" are positions from 1."""
    if class_list == "own":
        return {name: number for number, name in enumerate(detector_classes, start=1)}
    return class_ids(class_list)


def _page_result(name: str, file: Path, raw_page: RawPage, result: PageDetections, class_list: ClassList) -> PageResult:
    height, width = raw_page.image.shape
    detections, unnamed = result.detections, 0
    if class_list != "own":  # words are read from left to right on the page as the network processed it
        upright = detections.rotated_180(width, height) if result.upside_down else detections
        listed = to_class_list(upright, class_list)
        detections = listed.rotated_180(width, height) if result.upside_down else listed
        unnamed = count_unnamed(upright, class_list)
    message = "; ".join(part for part in (raw_page.message, result.message) if part)
    measured = (result.interline, result.seconds, message)
    return PageResult(name, str(file), width, height, detections, *measured, number=raw_page.number, unnamed=unnamed)


def _save_page(out: Path, page: PageResult, raw_page: RawPage, records: PageRecords, *, draw: bool) -> None:
    """Write the files of one page; its record comes last, so that recorded pages are complete."""
    records.reserve(page)
    if draw:
        drawn = draw_detections(raw_page.image, page.detections)
        with atomic_path(out / "drawn" / f"{page.name}.png") as temporary:
            temporary.write_bytes(cv2.imencode(".png", drawn)[1].tobytes())
    write_xml(out, page)
    records.add(page)


def _write_results(
    out: Path,
    records: PageRecords,
    ids: dict[str, int],
    skipped: Sequence[tuple[str, str]],
    about: dict[str, Any],
    *,
    complete: bool,
) -> dict[str, Any]:
    """Write the files with the results of all pages, and return the summary."""
    rows: list[tuple[str, ...]] = [HEADER]
    counts: Counter[str] = Counter()
    figures: list[tuple[str, str]] = []
    unnamed = 0
    with open_results(out, ids) as results:
        for page in records.pages():
            results.add(page)
            counts.update(page.detections.names)
            unnamed += page.unnamed
            interline = "" if page.interline is None else f"{page.interline:.1f}"
            rows.append((page.name, str(len(page.detections)), interline, f"{page.seconds:.2f}", page.message))
            if about["draw"] and len(figures) < MAX_FIGURES:
                with suppress(UnreadableImageError):  # the file was removed since
                    figures.append((page.name, boxes_figure(read_page(page.source), page.detections)))
    summary = {
        "entourage": __version__,
        "made_by": COMMAND,
        **about,
        "complete": complete,
        "pages": len(rows) - 1,
        "symbols": sum(counts.values()),
        "unnamed": unnamed,
        "empty": sum(row[1] == "0" for row in rows[1:]),
        "classes": dict(counts.most_common()),
        "skipped": [{"item": name, "reason": reason} for name, reason in skipped],
    }
    sections = run_sections(rows, counts, figures, skipped)
    write_page(out / "report.html", "Symbols on pages", f"entourage {__version__}", sections)
    write_json(out / "summary.json", summary)
    return summary


def _existing(sources: Sequence[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    """Split the sources into existing ones and missing ones, with a reason for each missing one.

    If all are missing, all are returned as existing, so that `list_pages` raises an error.
    """
    missing = [source for source in sources if not source.exists()]
    if len(missing) == len(sources):
        return list(sources), []
    return [source for source in sources if source not in missing], [(str(one), "does not exist") for one in missing]


def _lies_in(folder: Path, file: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(file)).parents  # resolve() fails at links in a ring


def _unique_name(name: str, file: Path, files: Sequence[Path], names: set[str]) -> str:
    """Return a name that is not in `names`, with the suffix of the file or a number if necessary, and add it."""
    chosen, number = name, 1
    if name in names and any(one.stem == file.stem and one.suffix != file.suffix for one in files):
        name = chosen = f"{name}_{file.suffix.lower().removeprefix('.')}"
    while chosen in names:
        number += 1
        chosen = f"{name}_{number}"
    names.add(chosen)
    return chosen

"""Reading of many pages: scores from images and PDF files, with a report; an interrupted run resumes."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cv2
import torch

from entourage import __version__
from entourage.compute import count_threads, resolve_device
from entourage.detect.detector import find_detector
from entourage.detect.inference.results import model_digest
from entourage.detect.models.watershed import load_detector
from entourage.detect.preprocessing.reading import list_pages, page_numbers, read_numbered_page
from entourage.extras import missing_packages
from entourage.io.files import UnreadableFileError, check_outputs, error_reason, write_json
from entourage.io.progress import progress_bar
from entourage.read.formats.midi import check_tempo
from entourage.read.reader import PageReading, ScoreReader, Transcription, join_pages
from entourage.read.records import RESULTS, PageRecords, PageTask, open_records
from entourage.read.report import ReportScore, write_report
from entourage.read.text.recognition import TextRecognizer
from entourage.read.transpose import parse_interval
from entourage.report.page import pluralize

COMMAND = "read"
_PAGE_ERRORS = (ValueError, MemoryError, torch.OutOfMemoryError, cv2.error)
Load = tuple[Path, str, bool]  # model and device of the detector, and whether text is read
_MAX_WORKERS = 4  # by default; each holds a detector and a page in memory


@dataclass
class ReadConfig:
    """Configuration of a run of `entourage read`.

    Attributes:
        pages: images, PDF files and folders of such.
        out: folder to write to.
        join: make one score of all pages.
        extra_format: a further format of the scores, or None.
        transpose: interval by which written pitches and keys are transposed, or semitones; None: they are not.
        tempo: quarter notes per minute of MIDI files.
        repeats: whether MIDI files play repeated sections as often as printed.
        model: file of a detector, or the name of an included one; None: the default detector.
        text: read titles, words and lyrics; None: if the extra [text] is installed.
        workers: number of processes; None: one for each core, at most 4, and one on a GPU.
        device: device to compute on.
        progress: show a bar; None: only on a terminal.
    """

    pages: Sequence[Path]
    out: Path
    join: bool = False
    extra_format: Literal["mei"] | None = None
    transpose: str | None = None
    tempo: float = 100.0
    repeats: bool = True
    model: str | None = None
    text: bool | None = None
    workers: int | None = None
    device: str = "auto"
    progress: bool | None = None


@dataclass
class Document:
    """Pages that become one score.

    Attributes:
        name: name of its output files without suffix.
        tasks: its pages in order.
    """

    name: str
    tasks: list[PageTask]


@dataclass
class _Run:
    """Results that are complete so far."""

    skipped: list[tuple[str, str]] = field(default_factory=list)
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries of the summary by name


def run_reading(config: ReadConfig) -> dict[str, Any]:
    """Read the music of all pages and write the scores into a folder.

    For each score, the results are NAME.musicxml, NAME.mid, NAME.json and, if requested, NAME.mei; for the run,
    `report.html` and `summary.json`. A score without notes only has NAME.json. A page that is missing or cannot be read
    is skipped and listed. An interrupted run resumes when it is repeated with the same arguments.

    Args:
        config: the configuration.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: there is no page or no such detector, an option has no valid value, or `out` cannot be written to.
    """
    check_outputs(config.out, command=COMMAND)
    check_tempo(config.tempo)
    if config.transpose is not None:
        parse_interval(config.transpose)
    device = resolve_device(config.device)
    run = _Run()
    existing = [page for page in config.pages if page.exists() or page.is_symlink()]
    files = list_pages(existing or config.pages)
    run.skipped += [(str(page), "does not exist") for page in config.pages if page not in existing]
    documents = find_documents(files, config, run.skipped)
    model = find_detector(config.model)
    text = not missing_packages("text") if config.text is None else config.text
    if text:
        TextRecognizer()  # without the extra, before anything is written
    settings = {
        "entourage": __version__,
        "model": model_digest(load_detector(model)),
        "transpose": config.transpose,
        "tempo": config.tempo,
        "repeats": config.repeats,
        "extra_format": config.extra_format,
        "join": config.join,
        "text": text,
    }
    with open_records(config.out, settings, files) as records:
        try:
            _read_documents(documents, config, (model, str(device), text), records, run)
        except KeyboardInterrupt:
            if run.scores:
                _write_results(documents, config, records, run, complete=False)
                done = pluralize(len(run.scores), "scores")
                warnings.warn(f"{config.out} contains {done}; repeat the command to resume", stacklevel=2)
            raise
        summary = _write_results(documents, config, records, run, complete=True)
        records.delete_state()
    return summary


def find_documents(files: Sequence[Path], config: ReadConfig, skipped: list[tuple[str, str]]) -> list[Document]:
    """Group the pages of a run into scores: one for each file, or with `config.join` one of all files.

    Args:
        files: files of the pages.
        config: the configuration.
        skipped: list to which files that cannot be opened are appended, with the reason.
    """
    names = {Path(name).stem for name in RESULTS}
    documents: list[Document] = []
    for file in files:
        try:
            tasks = [PageTask(file, number) for number in page_numbers(file)]
        except (UnreadableFileError, OSError) as error:
            skipped.append((str(file), _reason(error)))
            continue
        if config.join and documents:
            documents[0].tasks += tasks
        elif config.join:
            folder = next((page for page in config.pages if page.is_dir() and page in file.parents), None)
            documents.append(Document(_unique_name(file if folder is None else folder.resolve(), files, names), tasks))
        else:
            documents.append(Document(_unique_name(file, files, names), tasks))
    return documents


def _unique_name(file: Path, files: Sequence[Path], names: set[str]) -> str:
    """Return the stem of a file; if it is taken, with the suffix of the file or a number."""
    name = file.name if file.is_dir() else file.stem
    if name in names and any(one.stem == file.stem and one.suffix != file.suffix for one in files):
        name = f"{name}_{file.suffix.lower().removeprefix('.')}"
    chosen, number = name, 1
    while chosen in names:
        number += 1
        chosen = f"{name}_{number}"
    names.add(chosen)
    return chosen


def _read_documents(
    documents: Sequence[Document],
    config: ReadConfig,
    load: Load,
    records: PageRecords,
    run: _Run,
) -> None:
    """Read all pages and write each score as soon as its last page is read."""
    missing = {document.name: sum(records.get(task) is None for task in document.tasks) for document in documents}
    owner = {task: document for document in documents for task in document.tasks}
    for document in documents:
        if missing[document.name] == 0:
            _write_document(document, config, records, run)
    tasks = [task for task in owner if records.get(task) is None]
    with progress_bar("Reading", len(owner), config.progress) as advance:
        advance(len(owner) - len(tasks))
        size = _count_processes(config.workers, torch.device(load[1]), len(owner))
        for task, result in _read_tasks(tasks, load, size):
            if isinstance(result, str):
                run.skipped.append((task.source, result))
            else:
                records.put(task, result)
            document = owner[task]
            missing[document.name] -= 1
            if missing[document.name] == 0:
                _write_document(document, config, records, run)
            advance(1)


def _count_processes(workers: int | None, device: torch.device, n_pages: int) -> int:
    """Return the number of processes of a run; None: one for each core, at most `_MAX_WORKERS`, and one on a GPU."""
    if workers is None:
        workers = min(count_threads(None), _MAX_WORKERS) if device.type == "cpu" else 1
    return max(1, min(count_threads(workers), n_pages))


def _read_tasks(tasks: Sequence[PageTask], load: Load, size: int) -> Iterator[tuple[PageTask, PageReading | str]]:
    """Read pages in processes; yield each with its music, or with the reason why it cannot be read.

    The number of threads of a process depends on `size` only, because the last digits of scores depend on it: a resumed
    run, which may have fewer pages than processes, gives the same results.
    """
    threads = max(1, count_threads(None) // size)
    if size == 1 or len(tasks) <= 1:
        before = torch.get_num_threads()
        torch.set_num_threads(before if size == 1 else threads)
        try:
            if tasks:
                reader = _load_reader(load)
                for task in tasks:
                    yield task, _read_page(reader, task)
        finally:
            torch.set_num_threads(before)
        return
    others = set(mp.active_children())
    size = min(size, len(tasks))
    arguments = (load, threads)
    executor = ProcessPoolExecutor(size, mp.get_context("spawn"), _start_worker, arguments)
    try:
        yield from _results(executor, tasks, 2 * size)
    except BrokenExecutor as error:
        raise ValueError(
            "workers: a process ended unexpectedly, for example for lack of memory; repeat the command with fewer"
        ) from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(mp.active_children()) - others:
            process.terminate()


def _results(
    executor: ProcessPoolExecutor, tasks: Sequence[PageTask], ahead: int
) -> Iterator[tuple[PageTask, PageReading | str]]:
    """Submit tasks, at most `ahead` at a time, and yield their results as they arrive."""
    waiting = iter(tasks)
    running: dict[Future[PageReading | str], PageTask] = {}
    while True:
        while len(running) < ahead and (task := next(waiting, None)) is not None:
            running[executor.submit(_work, task)] = task
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()


_READERS: list[ScoreReader] = []  # of a worker process: the one that `_start_worker` loaded


def _load_reader(load: Load) -> ScoreReader:
    model, device, text = load
    return ScoreReader.load(model, device, text=text)


def _start_worker(load: Load, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends its workers
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _READERS[:] = [_load_reader(load)]


def _work(task: PageTask) -> PageReading | str:
    return _read_page(_READERS[0], task)


def _read_page(reader: ScoreReader, task: PageTask) -> PageReading | str:
    """Return the music of a page, or the reason why it cannot be read."""
    try:
        raw_page = read_numbered_page(task.file, task.number)
        reading = reader.read_page(raw_page.image, task.source)
    except (*_PAGE_ERRORS, OSError) as error:
        return _reason(error)
    except Exception as error:  # an error of this program must not cost the results of all other pages
        if os.environ.get("ENTOURAGE_DEBUG"):
            raise
        return f"unexpected {type(error).__name__}: {error_reason(error)}"
    reading.info.message = "; ".join(part for part in (raw_page.message, reading.info.message) if part)
    return reading


def _reason(error: BaseException) -> str:
    return error.reason if isinstance(error, UnreadableFileError) else error_reason(error)


def _load_document(document: Document, records: PageRecords, transpose: str | None) -> Transcription | None:
    """Return the score of a document, or None if none of its pages could be read."""
    pages = [page for task in document.tasks if (page := records.get(task)) is not None]
    if not pages:
        return None
    score = join_pages(pages)
    return score if transpose is None else score.transposed(transpose)


def _write_document(document: Document, config: ReadConfig, records: PageRecords, run: _Run) -> None:
    """Write the files of a score, and add it to the summary."""
    score = _load_document(document, records, config.transpose)
    if score is None:
        return
    suffixes = ["json"]
    if score.n_notes:
        suffixes += ["musicxml", "mid", *(["mei"] if config.extra_format == "mei" else [])]
    files = {suffix: f"{document.name}.{suffix}" for suffix in suffixes}
    records.reserve(document.name, list(files.values()))
    paths = {suffix: config.out / file for suffix, file in files.items()}
    score.to_json(paths["json"])
    if score.n_notes:
        score.to_musicxml(paths["musicxml"])
        score.to_midi(paths["mid"], tempo=config.tempo, repeats=config.repeats)
        if config.extra_format == "mei":
            score.to_mei(paths["mei"])
    measures = score.measures
    run.scores[document.name] = {
        "name": document.name,
        "files": list(files.values()),
        "pages": [{"source": page.source, "message": page.message} for page in score.pages],
        "parts": len(score.parts),
        "measures": len(measures),
        "marked": sum(bool(measure.problem) for measure in measures),
        "notes": score.n_notes,
    }


def _write_results(
    documents: Sequence[Document], config: ReadConfig, records: PageRecords, run: _Run, *, complete: bool
) -> dict[str, Any]:
    """Write the report and the summary, and return the summary."""
    scores = [run.scores[document.name] for document in documents if document.name in run.scores]
    summary = {
        "entourage": __version__,
        "made_by": COMMAND,
        "complete": complete,
        "model": config.model or "default",
        "transpose": config.transpose,
        "pages": sum(len(score["pages"]) for score in scores),
        "notes": sum(score["notes"] for score in scores),
        "measures": sum(score["measures"] for score in scores),
        "marked": sum(score["marked"] for score in scores),
        "without_notes": [score["name"] for score in scores if score["notes"] == 0],
        "scores": scores,
        "skipped": [{"item": name, "reason": reason} for name, reason in run.skipped],
    }

    def readings() -> Iterator[ReportScore]:
        for document in documents:
            if document.name in run.scores:
                score = _load_document(document, records, config.transpose)
                if score is not None:
                    yield ReportScore(document.name, score)

    write_report(config.out / "report.html", readings(), summary)
    write_json(config.out / "summary.json", summary)
    return summary

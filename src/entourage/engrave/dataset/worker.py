"""Workers: read, engrave and write one score at a time, and report the outcome."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from entourage.compute import derive_seed
from entourage.engrave.dataset.formats import page_table, page_xml
from entourage.engrave.dataset.state import (
    TaskRecord,
    UnwritableError,
    open_records,
    software_versions,
    unwritable_errors,
    write_file,
)
from entourage.engrave.engines.lilypond import LilypondEngraver
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.encoding import encode_png
from entourage.engrave.render.page import Page
from entourage.engrave.scores.archives import ArchiveReader
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import Score, parse_score, read_score
from entourage.engrave.scores.substitution import substitute_symbols
from entourage.symbols import EXTENDED_IDS

_SOURCE_SUFFIX = {"musicxml": ".mxl", "mei": ".mei", "abc": ".abc", "humdrum": ".krn"}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a task: its pages, or the reason for its failure.

    Attributes:
        name: name of the task.
        pages: number of pages of the task.
        failure: reason why the task failed, or "" if it succeeded.
        worker_lost: whether the worker crashed or exceeded the time limit, which need not be the fault of the score.
    """

    name: str
    pages: int = 0
    failure: str = ""
    worker_lost: bool = False


class Worker:
    """Runs tasks one after another and keeps engravers and the last archive open between them.

    Args:
        options: options of the run.
    """

    def __init__(self, options: EngraveOptions) -> None:
        self.options = options
        self._records = open_records(options.out)
        self._engravers: dict[str, VerovioEngraver | LilypondEngraver] = {}
        self._reader = ArchiveReader()

    def run(self, task: EngraveTask) -> Outcome:
        """Run a task, unless the same software versions have finished it and all of its files exist.

        Args:
            task: the task.

        Returns:
            The outcome; a score that cannot be engraved is a failure and raises no error.

        Raises:
            UnwritableError: the output cannot be written, for example to a full disk.
        """
        try:
            score = self._score(task)
            return self._finished(task, score) or self._engrave(task, score)
        except UnwritableError:
            raise
        except Exception as error:  # of any type: no score may end the run
            reason = " ".join(str(error).split())
            if not isinstance(error, ValueError) or not reason:
                message = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
                reason = f"{task.file or task.name}: cannot be engraved: the engraver failed ({message})"
            return Outcome(task.name, failure=reason)

    def finished_outcome(self, task: EngraveTask) -> Outcome | None:
        """Return the outcome of a finished task whose score has not changed since; None for other tasks."""
        if self._records.get(task.name) is None:  # faster than reading the score
            return None
        with suppress(Exception):  # of any type, as in `run`
            return self._finished(task, self._score(task))
        return None

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of the software that this worker uses; see `software_versions`."""
        return software_versions(self.options.engine)

    def _finished(self, task: EngraveTask, score: Score) -> Outcome | None:
        record = self._records.get(task.name)
        meta = {} if record is None else record.meta
        if not meta or meta["makers"] != self.versions or meta["source_sha256"] != _digest(score):
            return None
        complete = all((self.options.out / path).is_file() for path in meta["files"])
        return Outcome(task.name, len(meta["pages"])) if complete else None

    def _score(self, task: EngraveTask) -> Score:
        if task.file is None:
            text = compose(self.options.seed, task.index, balanced=self.options.balanced)
            return parse_score(text, f"composed-{task.index:05d}")
        return substitute_symbols(read_score(task.file, self._reader), self.options.substitute, self.options.seed)

    def _engrave(self, task: EngraveTask, score: Score) -> Outcome:
        with unwritable_errors():
            self._records.invalidate(task.name)  # before the first of its files is replaced
        source = source_path(task.name, score)
        tables, pages, files = [], [], dict[str, str]()
        for page in self._pages(task, score):
            if len(page.symbols) < self.options.min_symbols:
                continue
            name = f"{task.name}-{page.number}"
            tables.append(
                page_table(page, score=task.name, source=source, work=score.work, name=name, font=task.font.name)
            )
            pages.append({"page": name, "number": page.number, "unlabelled": page.unlabelled})
            self._save(task, self._files(page, name), files)
        if not pages:
            raise ValueError(f"{task.name}: no page has {self.options.min_symbols} symbols; expected one that does")
        self._save(task, self._sources(task, score), files)
        meta = {"name": task.name, "work": score.work, "source_sha256": _digest(score), "pages": pages, "files": files}
        meta |= {"title": score.title, "composer": score.composer, "source": source, "font": task.font.name}
        meta["makers"] = self.versions
        with unwritable_errors(self._records.path(task.name)):
            self._records.put(task.name, TaskRecord(meta, pa.concat_tables(tables)))
        return Outcome(task.name, len(pages))

    def _save(self, task: EngraveTask, contents: Iterable[tuple[str, bytes]], files: dict[str, str]) -> None:
        """Write output files, each after its reservation, and add their checksums to `files`."""
        for path, data in contents:
            files[path] = hashlib.sha256(data).hexdigest()
            with unwritable_errors():
                self._records.reserve(task.name, [path])
            write_file(self.options.out / path, data)

    def _sources(self, task: EngraveTask, score: Score) -> Iterator[tuple[str, bytes]]:
        """Yield the source file. ABC cannot contain ids: yield it also as MEI, with the ids that Verovio assigned."""
        yield source_path(task.name, score), source_file(score)
        engraver = self._engravers[task.font.name]
        if score.notation == "abc" and isinstance(engraver, VerovioEngraver):
            yield f"sources/{task.name}.mei", engraver.mei().encode()

    def _pages(self, task: EngraveTask, score: Score) -> Iterator[Page]:
        key = task.font.name
        if key not in self._engravers:
            if self.options.engine == "lilypond":
                self._engravers[key] = LilypondEngraver(self.options.page)
            else:
                self._engravers[key] = VerovioEngraver(self.options.page, task.font)
        return self._engravers[key].engrave(score, lambda number: self._degrader(task, number))

    def _degrader(self, task: EngraveTask, number: int) -> Degrader | None:
        if self.options.degrade == "none":
            return None
        seed = derive_seed(self.options.seed, "degrade", task.name, number)
        return Degrader(self.options.degrade, self.options.page.height, self.options.page.width, seed)

    def _files(self, page: Page, name: str) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of each output file of a page."""
        dpi = self.options.page.dpi
        yield f"images/{name}.png", encode_png(page.image, dpi)
        if "segmentation" in self.options.formats:
            yield f"segmentation/{name}_seg.png", encode_png(page.segmentation(EXTENDED_IDS), dpi)
        if "instances" in self.options.formats:
            yield f"instances/{name}_inst.png", encode_png(page.instances(), dpi)
        if "deepscores" in self.options.formats:
            yield f"xml_annotations/{name}.xml", page_xml(page, f"{name}.png").encode()


def source_path(name: str, score: Score) -> str:
    """Return the path of the source file of a task, relative to the output folder."""
    return f"sources/{name}{_SOURCE_SUFFIX[score.notation]}"


def source_file(score: Score) -> bytes:
    """Return the content of a task's source file, with the ids that annotations refer to; MusicXML is compressed."""
    if score.notation != "musicxml":
        return score.text.encode()
    container = '<container><rootfiles><rootfile full-path="score.xml"/></rootfiles></container>'
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, text in (("META-INF/container.xml", container), ("score.xml", score.text)):
            archive.writestr(
                zipfile.ZipInfo(inside), text, zipfile.ZIP_DEFLATED
            )  # dated 1980, so that equal scores give equal bytes
    return stream.getvalue()


def _digest(score: Score) -> str:
    return hashlib.sha256(score.text.encode()).hexdigest()

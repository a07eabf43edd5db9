"""One task from beginning to end: a score is read, engraved and written, or reported as a failure."""

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
    UnwritableError,
    read_record,
    record_path,
    recorded_files,
    reservation_path,
    reserve_files,
    software_versions,
    write_file,
    write_record,
)
from entourage.engrave.engines.lilypond import LilypondEngraver
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.encoding import encode_png
from entourage.engrave.render.page import Page
from entourage.engrave.scores.archives import ScoreReader
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import Score, parse_score, read_score
from entourage.engrave.scores.substitution import substitute_symbols
from entourage.symbols import EXTENDED_IDS

_SOURCE_SUFFIX = {"musicxml": ".mxl", "mei": ".mei", "abc": ".abc", "humdrum": ".krn"}


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        name: of the task.
        pages: how many it has.
        failure: why it has none.
        worker_lost: the worker crashed or took too long, so that nothing is known of the score.
    """

    name: str
    pages: int = 0
    failure: str = ""
    worker_lost: bool = False


class Worker:
    """Does the tasks of a job one after the other; engravers and the open archive are kept from task to task."""

    def __init__(self, options: EngraveOptions) -> None:
        self.options = options
        self._engravers: dict[str, VerovioEngraver | LilypondEngraver] = {}
        self._reader = ScoreReader()

    def run(self, task: EngraveTask) -> Outcome:
        """Does a task, unless it has been done before, by the same versions, and its files are still there.

        Bad scores are an outcome, not an error.

        Raises:
            UnwritableError: the disk is full, say.
        """
        try:
            score = self._score(task)
            return self._finished(task, score) or self._engrave(task, score)
        except UnwritableError:
            raise
        except Exception as error:  # no score may stop the others, whatever it brings about
            reason = " ".join(str(error).split())
            if not isinstance(error, ValueError) or not reason:
                message = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
                reason = f"{task.file or task.name} cannot be engraved: it breaks the engraver ({message})"
            return Outcome(task.name, failure=reason)

    def finished_outcome(self, task: EngraveTask) -> Outcome | None:
        """The outcome of a task that is done and whose score has not changed since; None of any other."""
        if read_record(record_path(self.options.out, task.name)) is None:  # which spares reading the score
            return None
        with suppress(Exception):  # as in `run`
            return self._finished(task, self._score(task))
        return None

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions at work here."""
        return software_versions(self.options.engine)

    def _finished(self, task: EngraveTask, score: Score) -> Outcome | None:
        meta = read_record(record_path(self.options.out, task.name))
        if meta is None or meta["makers"] != self.versions or meta["source_sha256"] != _digest(score):
            return None
        complete = all((self.options.out / path).is_file() for path in meta["files"])
        return Outcome(task.name, len(meta["pages"])) if complete else None

    def _score(self, task: EngraveTask) -> Score:
        if task.file is None:
            text = compose(self.options.seed, task.index, balanced=self.options.balanced)
            return parse_score(text, f"composed-{task.index:05d}")
        return substitute_symbols(read_score(task.file, self._reader), self.options.substitute, self.options.seed)

    def _engrave(self, task: EngraveTask, score: Score) -> Outcome:
        record, files = record_path(self.options.out, task.name), dict[str, str]()
        reserve_files(reservation_path(self.options.out, task.name), recorded_files(record))
        record.unlink(missing_ok=True)  # with the first page that is written it no longer holds
        source = source_path(task.name, score)
        tables, pages = [], []
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
            raise ValueError(f"{task.name}: no page has {self.options.min_symbols} symbols or more")
        self._save(task, self._sources(task, score), files)
        meta = {"name": task.name, "work": score.work, "source_sha256": _digest(score), "pages": pages, "files": files}
        meta |= {"title": score.title, "composer": score.composer, "source": source, "font": task.font.name}
        meta["makers"] = self.versions
        write_record(record, pa.concat_tables(tables), meta)
        return Outcome(task.name, len(pages))

    def _save(self, task: EngraveTask, contents: Iterable[tuple[str, bytes]], files: dict[str, str]) -> None:
        """Writes files of the output, each noted before, so that a kill leaves none unknown; and their checksums."""
        for path, data in contents:
            files[path] = hashlib.sha256(data).hexdigest()
            reserve_files(reservation_path(self.options.out, task.name), [path])
            write_file(self.options.out / path, data)

    def _sources(self, task: EngraveTask, score: Score) -> Iterator[tuple[str, bytes]]:
        """The source; if its notes can have no ids, as in ABC, also as MEI with those that the engraver gave them."""
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
        """The files of a page, as path in the output and content."""
        dpi = self.options.page.dpi
        yield f"images/{name}.png", encode_png(page.image, dpi)
        if "segmentation" in self.options.formats:
            yield f"segmentation/{name}_seg.png", encode_png(page.segmentation(EXTENDED_IDS), dpi)
        if "instances" in self.options.formats:
            yield f"instances/{name}_inst.png", encode_png(page.instances(), dpi)
        if "deepscores" in self.options.formats:
            yield f"xml_annotations/{name}.xml", page_xml(page, f"{name}.png").encode()


def source_path(name: str, score: Score) -> str:
    """Where the source of a task lies in the output."""
    return f"sources/{name}{_SOURCE_SUFFIX[score.notation]}"


def source_file(score: Score) -> bytes:
    """The source that travels with the pages: MusicXML compressed, with the ids that annotations point to."""
    if score.notation != "musicxml":
        return score.text.encode()
    container = '<container><rootfiles><rootfile full-path="score.xml"/></rootfiles></container>'
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, text in (("META-INF/container.xml", container), ("score.xml", score.text)):
            archive.writestr(zipfile.ZipInfo(inside), text, zipfile.ZIP_DEFLATED)  # always dated 1980
    return stream.getvalue()


def _digest(score: Score) -> str:
    return hashlib.sha256(score.text.encode()).hexdigest()

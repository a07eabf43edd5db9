"""One task from beginning to end: a score is read, engraved and written, or reported as a failure."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from entourage.data import atomic_path
from entourage.engrave.compose import compose
from entourage.engrave.degrade import Degrader
from entourage.engrave.formats import SCHEMA, page_table, page_xml
from entourage.engrave.job import EngraveJob, Task, draw
from entourage.engrave.lilypond_engine import LilypondEngraver
from entourage.engrave.page import Page
from entourage.engrave.png import encode_png
from entourage.engrave.replace import replace_common
from entourage.engrave.scores import Score, parse_score, read_score
from entourage.engrave.symbols import EXTENDED_IDS
from entourage.engrave.verovio_engine import VerovioEngraver

STATE = ".state"  # folder of finished tasks inside the output
BEGUN = ".begun"  # ending of the file there that says that a task has begun to write
_META = b"entourage"
_ENDING = {"musicxml": ".mxl", "mei": ".mei", "abc": ".abc", "humdrum": ".krn"}


@dataclass(frozen=True)
class Outcome:
    """What became of a task: the number of its pages, or why it failed."""

    name: str
    pages: int = 0
    failure: str = ""


class UnwritableError(OSError):
    """The output cannot be written, which is no fault of the score: the run has to stop."""


class Worker:
    """Does the tasks of a job one after the other; engravers are kept from task to task."""

    def __init__(self, job: EngraveJob) -> None:
        self.job = job
        self._engravers: dict[str, VerovioEngraver | LilypondEngraver] = {}

    def do(self, task: Task) -> Outcome:
        """Does a task, unless it has been done before and its files are still there.

        Bad scores are an outcome, not an error.

        Raises:
            UnwritableError: the disk is full, say.
        """
        try:
            score = self._score(task)
            digest = hashlib.sha256(score.text.encode()).hexdigest()
            done = read_part_meta(part_path(self.job.out, task.name))
            if done is not None and done["source_sha256"] == digest and self._complete(done):
                return Outcome(task.name, len(done["pages"]))
            return self._engrave(task, score, digest)
        except UnwritableError:
            raise
        except Exception as error:  # no score may stop the others, whatever it brings about
            reason = " ".join(str(error).split())
            if not isinstance(error, ValueError) or not reason:
                told = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
                reason = f"{task.file or task.name} cannot be engraved: it breaks the engraver ({told})"
            return Outcome(task.name, failure=reason)

    def _complete(self, done: dict[str, Any]) -> bool:
        return all((self.job.out / place).is_file() for place in done["files"])

    def _score(self, task: Task) -> Score:
        if task.file is None:
            text = compose(self.job.seed, task.index, balanced=self.job.balanced)
            return parse_score(text, f"composed-{task.index:05d}")
        return replace_common(read_score(task.file), self.job.replace, self.job.seed)

    def _engrave(self, task: Task, score: Score, digest: str) -> Outcome:
        files: dict[str, str] = {}
        _write(self.job.out / STATE / f"{task.name}{BEGUN}", b"")
        try:
            return self._write_pages(task, score, digest, files)
        except UnwritableError:  # what is there is right, and the run that continues may be at work on it already
            raise
        except Exception:
            for place in files:  # of a score that fails nothing is left
                (self.job.out / place).unlink(missing_ok=True)
            raise

    def _write_pages(self, task: Task, score: Score, digest: str, files: dict[str, str]) -> Outcome:
        source = source_path(task.name, score)
        tables, pages = [], []
        for page in self._pages(task, score):
            if len(page.symbols) < self.job.fewest_symbols:
                continue
            name = f"{task.name}-{page.number}"
            tables.append(
                page_table(page, score=task.name, source=source, work=score.work, name=name, font=task.font.name)
            )
            pages.append({"page": name, "number": page.number, "unlabelled": page.unlabelled})
            self._save(self._files(page, name), files)
        if not pages:
            raise ValueError(f"{task.name}: no page has {self.job.fewest_symbols} symbols or more")
        self._save(self._sources(task, score), files)
        meta = {"name": task.name, "work": score.work, "source_sha256": digest, "pages": pages, "files": files}
        meta |= {"title": score.title, "composer": score.composer, "source": source, "font": task.font.name}
        write_part(part_path(self.job.out, task.name), pa.concat_tables(tables), meta)
        return Outcome(task.name, len(pages))

    def _save(self, contents: Iterable[tuple[str, bytes]], files: dict[str, str]) -> None:
        """Writes files of the output and notes their checksums."""
        for place, data in contents:
            files[place] = hashlib.sha256(data).hexdigest()
            _write(self.job.out / place, data)

    def _sources(self, task: Task, score: Score) -> Iterator[tuple[str, bytes]]:
        """The source; if its notes can have no ids, as in ABC, also as MEI with those that the engraver gave them."""
        yield source_path(task.name, score), source_file(score)
        engraver = self._engravers[task.font.name]
        if score.notation == "abc" and isinstance(engraver, VerovioEngraver):
            yield f"sources/{task.name}.mei", engraver.mei().encode()

    def _pages(self, task: Task, score: Score) -> Iterator[Page]:
        key = task.font.name
        if key not in self._engravers:
            if self.job.engine == "lilypond":
                self._engravers[key] = LilypondEngraver(self.job.page)
            else:
                self._engravers[key] = VerovioEngraver(self.job.page, task.font)
        return self._engravers[key].engrave(score, lambda number: self._degrader(task, number))

    def _degrader(self, task: Task, number: int) -> Degrader | None:
        if self.job.degrade == "none":
            return None
        seed = draw(self.job.seed, "degrade", task.name, number)
        return Degrader(self.job.degrade, self.job.page.height, self.job.page.width, seed)

    def _files(self, page: Page, name: str) -> Iterator[tuple[str, bytes]]:
        """The files of a page, as path in the output and content."""
        dpi = self.job.page.dpi
        yield f"images/{name}.png", encode_png(page.image, dpi)
        if "segmentation" in self.job.formats:
            yield f"segmentation/{name}_seg.png", encode_png(page.segmentation(EXTENDED_IDS), dpi)
        if "instances" in self.job.formats:
            yield f"instances/{name}_inst.png", encode_png(page.instances(), dpi)
        if "deepscores" in self.job.formats:
            yield f"xml_annotations/{name}.xml", page_xml(page, f"{name}.png").encode()


def source_path(name: str, score: Score) -> str:
    """Where the source of a task lies in the output."""
    return f"sources/{name}{_ENDING[score.notation]}"


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


def part_path(out: Path, name: str) -> Path:
    """Where the rows of a finished task lie."""
    return out / STATE / f"{name}.parquet"


def write_part(path: Path, table: pa.Table, meta: dict[str, Any]) -> None:
    """Writes the rows of a task, with what else is known of it; once this file is there, the task is done."""
    table = table.replace_schema_metadata({_META: json.dumps(meta, sort_keys=True).encode()})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    _write(path, stream.getvalue())


def read_part_meta(path: Path) -> dict[str, Any] | None:
    """What is known of a finished task; None if it is not finished, or its file is damaged."""
    try:
        schema = pq.read_schema(path)
        if not schema.equals(SCHEMA) or not schema.metadata:
            return None
        meta: dict[str, Any] = json.loads(schema.metadata[_META])
        return meta
    except (OSError, pa.ArrowInvalid, KeyError, ValueError):
        return None


def _write(path: Path, data: bytes) -> None:
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise UnwritableError(f"{path} cannot be written: {error.strerror or error}") from error

"""How well pages are read: works that nothing was trained on, engraved by Verovio and MuseScore, and real scans.

python -m experiments.read_pages                      # works to choose by, and Mozart's pages of the real scans
python -m experiments.read_pages --final              # other works, and Scarlatti's pages: for the figures only
python -m experiments.read_pages --sets songs-musescore-clean,quartets-musescore-clean --pages 10

Every page is a row, so a run that was stopped resumes with the next page. A page holds as many measures of a work as
fit, and its truth is their MusicXML. OMR-NED and the F1 score of notes are those of `benchmarks.omr_ned`, pooled over
the pages of a set. The shipped detector was trained on pages of Verovio (of other works), not on pages of MuseScore.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from benchmarks.omr_ned import PageScore, pool_scores, score_page
from PIL import Image

from entourage.compute import derive_seed
from entourage.read import ScoreReader
from experiments.command import one_or_more, run_command
from experiments.ledger import Ledger, Row, ledger_of
from experiments.read_works import EngravedPage, Excerpt, Split, degrade, engrave_page, find_musescore, quartets, songs
from experiments.tables import table

SCANS = "real_scans_piano.zip"
_SEED = 12
_TIMEOUT = 300.0
_COMPARISONS = {"all": (), "music": ("lyrics", "directions")}  # kinds of symbols that a comparison leaves out
_TRAINED_ON = ("verovio",)


@dataclass(frozen=True)
class PageSet:
    """Pages of one kind.

    Attributes:
        music: "songs" or "quartets"; "scans" for the real ones.
        engine: "verovio" or "musescore", or the composer of the real scans.
        look: "clean", "scan" or "photo"; "print" for the real scans.
    """

    music: str
    engine: str
    look: str

    @property
    def name(self) -> str:
        """Name in options and rows."""
        return f"{self.music}-{self.engine}-{self.look}"


def page_sets(split: Split) -> list[PageSet]:
    """Return the sets of a split, in the order in which they are measured."""
    engraved = [
        PageSet(music, engine, look)
        for look in ("clean", "scan", "photo")
        for engine in ("musescore", "verovio")
        for music in ("songs", "quartets")
    ]
    return [*engraved, PageSet("scans", "scarlatti" if split == "final" else "mozart", "print")]


def main() -> None:
    """Measure the pages that are not measured yet and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--final", action="store_true", help="works and scans that are for final figures only")
    parser.add_argument("--sets", default="", help="names of sets, separated by commas; all if left out")
    parser.add_argument("--pages", type=one_or_more, default=50, help="maximum number of pages of each set")
    parser.add_argument("--model", default=None, help="a trained detector; the shipped one if left out")
    parser.add_argument("--device", default="auto", help="device of the detector")
    parser.add_argument("--results", type=Path, default=None, help="folder of the rows, if not results/")
    options = parser.parse_args()
    split: Split = "final" if options.final else "dev"
    sets = {one.name: one for one in page_sets(split)}
    chosen = [name for name in options.sets.split(",") if name] or list(sets)
    if unknown := [name for name in chosen if name not in sets]:
        raise ValueError(f"--sets: {unknown[0]!r} is unknown; expected some of {', '.join(sets)}")
    book = ledger_of("read_pages" if split == "final" else "read_pages_dev", options.results)
    reader = ScoreReader.load(options.model, options.device)
    for name in chosen:
        if sets[name].engine == "musescore" and find_musescore() is None:
            print(f"{name}: left out, MuseScore 3 is not installed", flush=True)
            continue
        for page, make in pages_of(sets[name], split, options.pages):
            book.row(f"{name}: {page}", partial(measure, reader, make))
        title = "Reading of pages" if split == "final" else "Reading of pages that the reader was developed on"
        book.write_table(title, partial(summary, split=split))
    print(summary(book, split=split))


def pages_of(page_set: PageSet, split: Split, count: int) -> Iterator[tuple[str, Callable[[], EngravedPage]]]:
    """Iterate over the names of the pages of a set, each with a function that makes the page.

    Args:
        page_set: the set.
        split: works to take.
        count: maximum number of pages.

    Raises:
        ValueError: the data set is missing.
    """
    if page_set.music == "scans":
        yield from _scans(page_set.engine, count)
        return
    excerpts = songs(split) if page_set.music == "songs" else quartets(split)
    for excerpt in excerpts[:count]:
        yield excerpt.name, partial(_engraved, excerpt, page_set)


def _engraved(excerpt: Excerpt, page_set: PageSet) -> EngravedPage:
    engine: Literal["musescore", "verovio"] = "musescore" if page_set.engine == "musescore" else "verovio"
    page = engrave_page(excerpt, engine)
    if page_set.look == "clean":
        return page
    kind: Literal["scan", "photo"] = "photo" if page_set.look == "photo" else "scan"
    seed = derive_seed(_SEED, kind, page_set.engine, excerpt.name)
    return EngravedPage(page.name, page.truth, degrade(page.image, kind, seed))


def _scans(composer: str, count: int) -> Iterator[tuple[str, Callable[[], EngravedPage]]]:
    """Iterate over the real scans of a composer; nothing if the data set is not there."""
    path = Path(os.environ.get("ENTOURAGE_DATA", "")) / SCANS
    if not path.exists():
        return
    with zipfile.ZipFile(path) as archive:
        members = {Path(name).name: name for name in archive.namelist()}
    stems = sorted(Path(name).stem for name in members if name.startswith(composer) and name.endswith(".png"))
    for stem in stems[:count]:
        yield stem, partial(_scan, path, members[f"{stem}.png"], members[f"{stem}.musicxml"])


def _scan(path: Path, page: str, truth: str) -> EngravedPage:
    with zipfile.ZipFile(path) as archive:
        with Image.open(io.BytesIO(archive.read(page))) as image:
            gray = np.asarray(image.convert("L"), dtype=np.uint8)
        return EngravedPage(Path(page).stem, archive.read(truth).decode(), gray)


def measure(reader: ScoreReader, make: Callable[[], EngravedPage]) -> dict[str, Any]:
    """Return the errors of one page: with all kinds of symbols, and without lyrics and directions.

    Args:
        reader: reads the page.
        make: makes the page. A page that cannot be engraved is a row with the reason and without figures.
    """
    try:
        page = make()
    except ValueError as error:
        return {"not engraved": str(error)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, found = folder / "truth.musicxml", folder / "found.musicxml"
        truth.write_text(page.truth, encoding="utf-8")
        read = reader.read(page.image)
        prediction = found if read.notes else None
        if prediction is not None:
            read.to_musicxml(found)
        scores = {kind: score_page(truth, prediction, out, _TIMEOUT) for kind, out in _COMPARISONS.items()}
    return {
        kind: asdict(score) | {"omr_ned": score.omr_ned, "note_f1": score.note_f1} for kind, score in scores.items()
    }


def pooled(rows: Mapping[str, Row], name: str, kind: str) -> tuple[int, PageScore]:
    """Return the number of measured pages of a set and their pooled errors.

    Args:
        rows: rows by "SET: PAGE".
        name: name of the set.
        kind: "all" or "music".
    """
    keys = [field.name for field in fields(PageScore)]
    found = [row[kind] for key, row in rows.items() if key.startswith(f"{name}: ") and kind in row]
    return len(found), pool_scores([PageScore(**{key: row[key] for key in keys}) for row in found])


def summary(book: Ledger, *, split: Split) -> str:
    """Return the table of the sets that have pages."""
    lines = []
    for one in page_sets(split):
        count, whole = pooled(book.rows, one.name, "all")
        if count:
            music = pooled(book.rows, one.name, "music")[1]
            trained = "yes" if one.engine in _TRAINED_ON else "no"
            figures = (f"{whole.omr_ned:.1f}", f"{music.omr_ned:.1f}", f"{music.note_f1:.1f}")
            lines.append((one.music, one.engine, one.look, trained, str(count), *figures))
    header = ("music", "engraver", "page", "engraver in training", "pages", "OMR-NED", "without text", "F1 of notes")
    text = "OMR-NED in % (0 is a perfect reading), also without lyrics and directions; F1 of notes in %."
    return f"{text}\n\n{table(header, lines)}"


if __name__ == "__main__":
    run_command(main)

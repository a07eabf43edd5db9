"""How well pages are read: works that nothing was trained on, engraved by Verovio and MuseScore, and real scans.

python -m experiments.read_pages                      # works to choose by, and Mozart's pages of the real scans
python -m experiments.read_pages --final              # other works, and Scarlatti's pages: for the figures only
python -m experiments.read_pages --sets songs-musescore-clean,quartets-musescore-clean --pages 10

python -m experiments.read_pages --store pages --engrave        # engrave the pages of a run, and measure nothing
python -m experiments.read_pages --sets songs-musescore-clean --text   # read titles, words and lyrics, too

Every page is a row, so a run that was stopped resumes with the next page, and several processes share the pages. A page
holds as many measures of a work as fit, and its truth is their MusicXML. OMR-NED and the F1 score of notes are those of
`benchmarks.omr_ned`, pooled over the pages of a set. The shipped detector was trained on pages of Verovio (of other
works), not on pages of MuseScore. The three methods of rhythms read the same detections. Without `--text`, no text is
read.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from benchmarks.omr_ned import EDIT_KINDS, PageScore, pool_scores, score_page
from PIL import Image

from entourage.compute import derive_seed
from entourage.read import ScoreReader
from entourage.read.orientation import find_upright
from entourage.read.reader import join_pages
from entourage.read.rhythm.crossing import Method
from experiments.command import one_or_more, run_command
from experiments.ledger import Ledger, Row, ledger_of
from experiments.read_store import Music, PageStore
from experiments.read_works import Engine, EngravedPage, Split, degrade, find_musescore
from experiments.tables import table

SCANS = "real_scans_piano.zip"
_SEED = 12
_TIMEOUT = 300.0
_COMPARISONS = {"all": (), "music": ("lyrics", "directions")}  # kinds of symbols that a comparison leaves out
_TRAINED_ON = ("verovio",)
_METHOD: Method = "search"  # that of the reader; the others are compared without lyrics and directions
WITH_TEXT = "+text"  # end of the names of sets that are read with --text

# OMR-NED of the best published system on pages of the same kind, by its authors: its own pages, not those used here.
PUBLISHED = {
    "songs": ("copisteria", 17.2, "songs engraved by MuseScore"),
    "quartets": ("copisteria", 6.0, "quartets engraved by MuseScore"),
    "scans": ("copisteria", 34.1, "112 scans of piano music"),
}


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
    parser.add_argument("--store", type=Path, default=None, help="folder of engraved pages, read or written")
    parser.add_argument("--engrave", action="store_true", help="only engrave the pages into the folder of --store")
    parser.add_argument("--text", action="store_true", help="read text, too; requires the extra [text]")
    options = parser.parse_args()
    split: Split = "final" if options.final else "dev"
    sets = {one.name: one for one in page_sets(split)}
    chosen = [name for name in options.sets.split(",") if name] or list(sets)
    if unknown := [name for name in chosen if name not in sets]:
        raise ValueError(f"--sets: {unknown[0]!r} is unknown; expected some of {', '.join(sets)}")
    store = PageStore(options.store)
    if options.engrave:
        for name in chosen:
            _engrave(sets[name], split, options.pages, store)
        return
    book = ledger_of("read_pages" if split == "final" else "read_pages_dev", options.results)
    reader = ScoreReader.load(options.model, options.device, text=options.text)
    for name in chosen:
        if sets[name].engine == "musescore" and options.store is None and find_musescore() is None:
            print(f"{name}: left out, MuseScore 3 is not installed", flush=True)
            continue
        for page, make in pages_of(sets[name], split, options.pages, store):
            key = name + (WITH_TEXT if options.text else "")
            book.row(f"{key}: {page}", partial(measure, reader, make, () if options.text else get_args(Method)))
        title = "Reading of pages" if split == "final" else "Reading of pages that the reader was developed on"
        book.write_table(title, partial(summary, split=split))
    print(summary(book, split=split))


def _engrave(page_set: PageSet, split: Split, count: int, store: PageStore) -> None:
    """Engrave the pages of a set into the folder of a store."""
    if page_set.music == "scans":
        return
    for page, make in pages_of(PageSet(page_set.music, page_set.engine, "clean"), split, count, store):
        try:
            make()
        except ValueError as error:
            print(f"{page_set.name}: {page}: {error}", flush=True)


def pages_of(
    page_set: PageSet, split: Split, count: int, store: PageStore
) -> Iterator[tuple[str, Callable[[], EngravedPage]]]:
    """Iterate over the names of the pages of a set, each with a function that makes the page.

    Args:
        page_set: the set.
        split: works to take.
        count: maximum number of pages.
        store: where engraved pages are kept.

    Raises:
        ValueError: the data set is missing.
    """
    if page_set.music == "scans":
        yield from _scans(page_set.engine, count)
        return
    music: Music = "songs" if page_set.music == "songs" else "quartets"
    engine: Engine = "musescore" if page_set.engine == "musescore" else "verovio"
    for name, make in store.pages(music, split, engine, count):
        yield name, partial(_degraded, make, page_set)


def _degraded(make: Callable[[], EngravedPage], page_set: PageSet) -> EngravedPage:
    page = make()
    if page_set.look == "clean":
        return page
    kind: Literal["scan", "photo"] = "photo" if page_set.look == "photo" else "scan"
    seed = derive_seed(_SEED, kind, page_set.engine, page.name)
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


def measure(reader: ScoreReader, make: Callable[[], EngravedPage], methods: tuple[Method, ...] = ()) -> dict[str, Any]:
    """Return the errors of one page: with all kinds of symbols, and without lyrics and directions.

    Args:
        reader: reads the page.
        make: makes the page. A page that cannot be engraved is a row with the reason and without figures.
        methods: methods of rhythms to compare, on the same detections.
    """
    try:
        page = make()
    except ValueError as error:
        return {"not engraved": str(error)}
    upright = find_upright(reader.detector, page.image)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / "truth.musicxml"
        truth.write_text(page.truth, encoding="utf-8")
        found: dict[str, Path | None] = {}
        marked: dict[str, int] = {}
        for method in (_METHOD, *(one for one in methods if one != _METHOD)):
            read = join_pages([reader.read_upright(upright, method=method)])
            found[method] = folder / f"{method}.musicxml" if read.notes else None
            marked[method] = sum(bool(measure.problem) for measure in read.measures)
            if read.notes:
                read.to_musicxml(folder / f"{method}.musicxml")
            if method == _METHOD:
                n_measures = len(read.measures)
        scores = {kind: score_page(truth, found[_METHOD], out, _TIMEOUT) for kind, out in _COMPARISONS.items()}
        without = _COMPARISONS["music"]
        others = [method for method in found if method != _METHOD]
        scores |= {method: score_page(truth, found[method], without, _TIMEOUT) for method in others}
    figures = {
        kind: asdict(score) | {"omr_ned": score.omr_ned, "note_f1": score.note_f1} for kind, score in scores.items()
    }
    return figures | {"measures": n_measures, "marked": marked}


def pooled(rows: Mapping[str, Row], name: str, kind: str) -> tuple[int, PageScore]:
    """Return the number of measured pages of a set and their pooled errors.

    Args:
        rows: rows by "SET: PAGE".
        name: name of the set.
        kind: "all" or "music".
    """
    keys = [field.name for field in fields(PageScore)]
    found = [row[kind] for key, row in rows.items() if key.startswith(f"{name}: ") and kind in row]
    return len(found), pool_scores([PageScore(**{key: row[key] for key in keys if key in row}) for row in found])


def summary(book: Ledger, *, split: Split) -> str:
    """Return the tables of the sets that have pages."""
    names = {one.name + text: (one, text) for one in page_sets(split) for text in ("", WITH_TEXT)}
    rows = {name: item for name, item in names.items() if pooled(book.rows, name, "all")[0]}
    parts = [
        "OMR-NED in % (0 is a perfect reading), also without lyrics and directions; F1 of notes in %; measures that "
        "are marked because their durations do not add up, in %. Scans and photographs of engraved pages are "
        "simulated.",
        _sets_table(book, rows),
        "OMR-NED without lyrics and directions, and F1 of notes, by the method that finds rhythms on the same "
        "detections: durations as printed (rules), the search for readings that add up, and the search after the game "
        "of competing readings.",
        _methods_table(book, rows),
        "Where errors come from: edits in percent of the symbols of both scores, by kind of symbol.",
        _kinds_table(book, rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _sets_table(book: Ledger, rows: Mapping[str, tuple[PageSet, str]]) -> str:
    lines = []
    for name, (one, text) in rows.items():
        count, whole = pooled(book.rows, name, "all")
        music = pooled(book.rows, name, "music")[1]
        trained = "yes" if one.engine in _TRAINED_ON else "no"
        measured = [row for key, row in book.rows.items() if key.startswith(f"{name}: ") and "measures" in row]
        n_measures = sum(row["measures"] for row in measured)
        marked = f"{100 * sum(row['marked'][_METHOD] for row in measured) / n_measures:.1f}" if n_measures else ""
        figures = (f"{whole.omr_ned:.1f}", f"{music.omr_ned:.1f}", f"{music.note_f1:.1f}", marked)
        lines.append((one.music, one.engine, one.look, trained, "yes" if text else "no", str(count), *figures))
    header = ("music", "engraver", "page", "engraver in training", "text read", "pages")
    return table((*header, "OMR-NED", "without text", "F1 of notes", "marked"), lines)


def _methods_table(book: Ledger, rows: Mapping[str, tuple[PageSet, str]]) -> str:
    lines = []
    for name in rows:
        if pooled(book.rows, name, "rules")[0]:
            scores = [pooled(book.rows, name, kind)[1] for kind in ("rules", "music", "game")]
            lines.append((name, *(f"{score.omr_ned:.1f} / {score.note_f1:.1f}" for score in scores)))
    return table(("pages", "rules", "search", "game"), lines) if lines else ""


def _kinds_table(book: Ledger, rows: Mapping[str, tuple[PageSet, str]]) -> str:
    lines = []
    for name in rows:
        score = pooled(book.rows, name, "all")[1]
        total = score.n_truth + score.n_found
        if score.edits_by_kind and total:
            shares = Counter(score.edits_by_kind)
            lines.append((name, *(f"{100 * shares[kind] / total:.2f}" for kind in EDIT_KINDS)))
    return table(("pages", *EDIT_KINDS), lines) if lines else ""


if __name__ == "__main__":
    run_command(main)

"""Pages per second of the engraving pipeline by step, next to CairoSVG and the LilyPond engine.

    python -m benchmarks.engrave_speed                      # composed scores
    python -m benchmarks.engrave_speed --scores FOLDER      # other scores; default: the Lieder in $ENTOURAGE_DATA

The pipeline reads and engraves scores and writes images, segmentations, boxes, masks and onsets at 1894 x 2668.
CairoSVG only renders the SVG of the same engraver. LilyPond and Verovio are compared on the three shortest scores, from
the score to the page with its symbols, by wall-clock time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cairosvg
import cv2

from benchmarks.engrave_scores import default_source, some_scores
from benchmarks.machine import machine
from entourage.engrave.annotate.assign_classes import assign_classes
from entourage.engrave.dataset.formats import page_table
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.engines.lilypond import LilypondEngraver
from entourage.engrave.engines.verovio import SvgReader, VerovioEngraver
from entourage.engrave.options import EngraveOptions, MusicFont, PageOptions
from entourage.engrave.render.encoding import encode_png
from entourage.engrave.render.page import render_page
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import Score, read_score
from entourage.symbols import EXTENDED_IDS

LEIPZIG = MusicFont("Leipzig")


def main() -> None:
    """Print pages per second on one core and on two, the ratios, and the fraction of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, default=default_source())
    parser.add_argument("--count", type=int, default=12, help="Number of scores.")
    parser.add_argument("--no-lilypond", action="store_true")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        files = some_scores(arguments.scores, arguments.count, Path(folder))
        steps, pages, svgs = _steps(files)
        chain = sum(steps.values()) / pages
        print(f"one core, step by step, {pages} pages of {len(files)} scores: {1 / chain:.2f} pages/s")
        for name, seconds in steps.most_common():
            print(f"  {name:<34}{1000 * seconds / pages:7.1f} ms per page  {seconds / pages / chain:5.0%}")
        cairo = _seconds(lambda: [cairosvg.svg2png(bytestring=svg.encode()) for svg in svgs[:6]]) / len(svgs[:6])
        print(f"CairoSVG, image only: {cairo:.2f} s per page, {cairo / chain:.1f} times the complete pipeline")
        for workers in (1, 2):
            rate = _pipeline(files, workers, Path(folder) / f"out{workers}")
            print(f"`entourage engrave` with {workers} worker{'s' * (workers > 1)}: {rate:.2f} pages/s")
        if not arguments.no_lilypond:
            _lilypond(files)


def _steps(files: list[ScoreFile]) -> tuple[Counter[str], int, list[str]]:
    """Return the CPU seconds of each step, the number of pages, and their SVG drawings."""
    spent: Counter[str] = Counter()

    @contextmanager
    def clock(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        spent[name] += time.process_time() - start

    options = PageOptions()
    engraver = VerovioEngraver(options, LEIPZIG)
    reader = SvgReader(options.interline / 200)
    svgs: list[str] = []
    for files_of_pass in (
        files[:1],
        files,
    ):  # the first score twice, so that glyphs and fonts are loaded before timing
        spent.clear()
        svgs.clear()
        for file in files_of_pass:
            with clock("read and check the score"):
                score = read_score(file)
            with clock("engrave: layout, and onsets"):
                events = engraver.load(score)
            for number in range(1, engraver._toolkit.getPageCount() + 1):
                with clock("engrave: draw as SVG"):
                    svg = engraver._toolkit.renderToSVG(number)
                with clock("outlines of all marks"):
                    marks = reader.read(svg)
                with clock("classes and music"):
                    annotated = assign_classes(marks, events, score.ids, options.interline)
                with clock("raster, boxes"):
                    page = render_page(marks, annotated, options.height, options.width, number)
                with clock("segmentation"):
                    segmentation = page.segmentation(EXTENDED_IDS)
                with clock("masks and table"):
                    page_table(page, score="s", source="s.mxl", work="w", name="n", font="f")
                with clock("PNG, two images"):
                    [encode_png(image, options.dpi) for image in (page.image, segmentation)]
                svgs.append(svg)
    return spent, len(svgs), svgs


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _pipeline(files: list[ScoreFile], workers: int, out: Path) -> float:
    """Return the pages per wall-clock second of the command, including process start."""
    formats = ("segmentation", "parquet")
    sources = tuple({file.path for file in files}) if not files[0].member else ()
    if not sources:  # members of an archive: write the selected scores to a folder
        folder = out.with_name(f"{out.name}-scores")
        folder.mkdir()
        for file in files:
            (folder / f"{file.name}.musicxml").write_text(read_score(file).text, encoding="utf-8")
        sources = (folder,)
    start = time.perf_counter()
    manifest = engrave(EngraveOptions(out, sources, fonts=(LEIPZIG,), formats=formats, workers=workers))
    return float(manifest["counts"]["pages"] / (time.perf_counter() - start))


def _lilypond(files: list[ScoreFile]) -> None:
    scores = sorted((read_score(file) for file in files), key=lambda score: len(score.text))[:3]
    slow, pages = _wall(LilypondEngraver(PageOptions()), scores)
    fast, _ = _wall(VerovioEngraver(PageOptions(), LEIPZIG), scores)
    print(
        f"LilyPond engine, {pages} pages of {len(scores)} scores: {slow:.1f} s per page; "
        f"Verovio on the same: {fast:.2f}, {slow / fast:.0f} times faster"
    )


def _wall(engraver: VerovioEngraver | LilypondEngraver, scores: list[Score]) -> tuple[float, int]:
    """Return the wall-clock seconds per page, since LilyPond is a separate process, and the number of pages."""
    start = time.perf_counter()
    pages = sum(len(list(engraver.engrave(score))) for score in scores)
    return (time.perf_counter() - start) / pages, pages


if __name__ == "__main__":
    main()

"""Pages to train and test the shipped detector on, engraved in memory by several processes.

Works are divided as by `experiments.detect_pages`. Half of the works are engraved clean, the others as simulated
photographs and scans; in every second one, a fraction of the common symbols is replaced by rare ones. Composed pages
with balanced classes are added, and passages of works that LilyPond engraves, which takes much longer.
"""

from __future__ import annotations

import multiprocessing
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import cv2
import numpy as np

from entourage.compute import derive_seed
from entourage.detect.detections import detector_class
from entourage.detect.evaluation.ground_truth import GroundTruthPage, make_page
from entourage.engrave.engines.lilypond import LilypondEngraver
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import Degradation, MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.page import Page
from entourage.engrave.scores.archives import ScoreFile, find_scores
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import Score, parse_score, read_score
from entourage.engrave.scores.substitution import substitute_symbols
from experiments.detect_pages import HELD_OUT_FONT, SEED, SMALL, TENTHS, TRAINING_FONTS
from experiments.read_works import cut

Engine = Literal["verovio", "lilypond"]

PAGES_PER_SCORE = 7
SUBSTITUTE = 0.1  # fraction of the common symbols that are replaced, in every second score
TEST_SETS: dict[str, tuple[Engine, Degradation, bool]] = {  # engraver, degradation, font that is not trained on
    "clean": ("verovio", "none", False),
    "photo": ("verovio", "photo", False),
    "font": ("verovio", "none", True),
    "lilypond": ("lilypond", "none", False),
}
_PASSAGE = 24  # measures of a passage for LilyPond
_COMPOSED_PASSAGES = 4  # every n-th of LilyPond's passages is from a composition
_TEST_PAGES = 2  # per score
_TEST_STEP = 6  # every n-th score of the archive is considered; a fifth of them are test works
_PARTS = [part for part, tenths in TENTHS.items() for _ in range(tenths)]


@dataclass(frozen=True)
class PageJob:
    """Pages of one score.

    Attributes:
        archive: archive of the scores; None: the score is composed.
        number: number of the score in the archive, or of the composition.
        font: music font of Verovio.
        degrade: degradation of the pages.
        substitute: fraction of common symbols that is replaced by rare ones.
        test: whether works of the test part are engraved, instead of all others.
        size: size of the pages.
        pages: maximum number of pages.
        engine: the engraver; LilyPond engraves a passage.
    """

    archive: Path | None
    number: int
    font: MusicFont = TRAINING_FONTS[0]
    degrade: Degradation = "none"
    substitute: float = 0.0
    test: bool = False
    size: PageOptions = SMALL
    pages: int = PAGES_PER_SCORE
    engine: Engine = "verovio"

    @property
    def name(self) -> str:
        """Name of the job's files."""
        return f"{self.engine}-{'composed' if self.archive is None else 'score'}-{self.number:04d}"


def training_jobs(
    archive: Path, compositions: int, passages: int, substitute: float = SUBSTITUTE, every: int = 1
) -> list[PageJob]:
    """Return the jobs of the scores of an archive, of compositions and of LilyPond's passages, in random order.

    Args:
        archive: archive of the scores.
        compositions: number of compositions.
        passages: number of passages that LilyPond engraves.
        substitute: fraction of common symbols that is replaced by rare ones, in every second score.
        every: take every n-th score, for trials.
    """
    jobs = []
    numbers = range(0, len(score_files(archive)), every)
    for number in numbers:
        random = np.random.default_rng([SEED, number])
        font = TRAINING_FONTS[int(random.integers(len(TRAINING_FONTS)))]
        degrade: Degradation = random.choice(["none", "photo", "scan"], p=(0.5, 0.3, 0.2))
        jobs.append(PageJob(archive, number, font, degrade, substitute * (number // every % 2)))
    for number in range(compositions):
        kind: Degradation = "photo" if number % 3 == 2 else "none"
        jobs.append(PageJob(None, number, TRAINING_FONTS[number % len(TRAINING_FONTS)], kind))
    random = np.random.default_rng(SEED)
    for number in range(passages):
        composed = number % _COMPOSED_PASSAGES == 0
        chosen = number if composed else int(random.choice(numbers))
        jobs.append(PageJob(None if composed else archive, chosen, substitute=2 * substitute, engine="lilypond"))
    order = random.permutation(len(jobs))
    return [jobs[i] for i in order]


def evaluation_jobs(archive: Path, every: int = 1) -> dict[str, list[PageJob]]:
    """Return the jobs of each test set: the first pages of works that are not trained on, at the default size."""
    sets = {}
    for name, (engine, degrade, held_out) in TEST_SETS.items():
        fonts = (MusicFont(HELD_OUT_FONT),) if held_out else TRAINING_FONTS
        sets[name] = [
            PageJob(archive, number, fonts[number % len(fonts)], degrade, 0.0, True, PageOptions(), _TEST_PAGES, engine)
            for number in range(0, len(score_files(archive)), every * _TEST_STEP)
        ]
    return sets


@cache
def score_files(archive: Path) -> tuple[ScoreFile, ...]:
    """Return the scores of an archive."""
    return tuple(find_scores([archive]))


def read_job(job: PageJob) -> Score | None:
    """Return the score of a job, or a passage of it; None if its work belongs to the other part."""
    if job.archive is None:
        score = parse_score(compose(SEED, job.number, balanced=True), f"composed-{job.number}")
    else:
        score = read_score(score_files(job.archive)[job.number])
        if (_PARTS[derive_seed(SEED, "part", score.work) % len(_PARTS)] == "test") is not job.test:
            return None
        score = substitute_symbols(score, job.substitute, SEED)
    return passage(score) if job.engine == "lilypond" else score


def passage(score: Score) -> Score:
    """Return a passage of a score, at random, but the same in every run."""
    measures = max(len(part.findall("measure")) for part in ET.fromstring(score.text).findall("part"))
    start = derive_seed(SEED, "passage", score.name) % max(1, measures - _PASSAGE)
    return parse_score(cut(score.text, start, _PASSAGE), score.name)


def engrave_job(job: PageJob) -> list[GroundTruthPage]:
    """Engrave the pages of a job; none if its score cannot be engraved or belongs to the other part."""
    try:
        score = read_job(job)
        if score is None:
            return []
        return [_ground_truth(job, score, page) for page in islice(_pages(job, score), job.pages)]
    except ValueError:
        return []


def engrave_jobs(
    jobs: Sequence[PageJob], workers: int, seconds: float
) -> Iterator[tuple[PageJob, list[GroundTruthPage]]]:
    """Engrave jobs by several processes, and yield their pages as they are finished.

    Args:
        jobs: the jobs.
        workers: number of processes.
        seconds: time after which the remaining jobs are left out.
    """
    end = time.perf_counter() + seconds
    with multiprocessing.get_context("spawn").Pool(workers) as pool:  # leaving it ends the processes
        finished = pool.imap_unordered(_engrave_numbered, enumerate(jobs))
        with suppress(StopIteration, multiprocessing.TimeoutError):
            while True:
                number, pages = finished.next(timeout=max(0.0, end - time.perf_counter()))
                yield jobs[number], pages


def _engrave_numbered(item: tuple[int, PageJob]) -> tuple[int, list[GroundTruthPage]]:
    number, job = item
    return number, engrave_job(job)


@cache
def _engraver(engine: Engine, font: MusicFont, size: PageOptions) -> VerovioEngraver | LilypondEngraver:
    return LilypondEngraver(size) if engine == "lilypond" else VerovioEngraver(size, font)


def _pages(job: PageJob, score: Score) -> Iterator[Page]:
    size = job.size

    def degrader(number: int) -> Degrader | None:
        if job.degrade == "none":
            return None
        seed = derive_seed(SEED, "degrade", score.name, str(number))
        return Degrader(job.degrade, size.height, size.width, seed)

    return _engraver(job.engine, job.font, size).engrave(score, degrader)


def _ground_truth(job: PageJob, score: Score, page: Page) -> GroundTruthPage:
    """Return a page with its annotations; the image is kept as PNG."""
    symbols = [(detector_class(s.label, s.v1), s.v1, s.extended) for s in page.symbols]
    name = f"{score.name}-{page.number}"
    packed = cv2.imencode(".png", page.image, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()
    return make_page(name, Path(f"{name}.png"), job.size.interline, symbols, page.boxes, packed=packed)

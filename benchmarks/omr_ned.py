"""Errors of read pages: OMR-NED of musicdiff and the F1 score of notes, by page and pooled.

python -m benchmarks.omr_ned PREDICTIONS TRUTHS [--without lyrics directions] [--jobs 2] [--timeout 600] [--json FILE]

Both folders hold one MusicXML file (.musicxml, .xml or .mxl) per page under the same stem; the pages are those of
TRUTHS.

OMR-NED is the number of edits between two scores divided by the number of symbols of both, in percent: 0 is a perfect
reading and 100 one without a common symbol. `--without` removes kinds of symbols from both scores; the names are those
of musicdiff's `DetailLevel`. A page whose prediction is missing, unreadable, empty or too slow to compare counts 100.

A note is right if its sounding pitch, its onset in the measure and its duration are those of the truth. Measures are
aligned so that as many notes as possible are right, so a missing bar line costs its measures only. If the numbers of
staves differ, staves are aligned by their pitches.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from entourage.io.files import write_json

SUFFIXES = (".musicxml", ".xml", ".mxl")
TIMEOUT = 600.0
_TIME_DIGITS = 3  # of onsets and durations: triplets are floats in music21

# Kinds of symbols, and words in the names of musicdiff's operations on them; the first kind that fits counts.
EDIT_KINDS: dict[str, tuple[str, ...]] = {
    "lyrics": ("lyric",),
    "beams": ("beam", "flag"),
    "tuplets": ("tuplet",),
    "ties": ("tie",),
    "dots": ("dot",),
    "accidentals": ("accident",),
    "marks": ("articulation", "expression"),
    "measures": ("bar", "measure"),
    "staves": ("staff", "part"),
    "signs around notes": ("extra",),
    "notes": ("note", "pitch", "head", "stem", "grace", "rest", "chord", "duration", "space", "voice"),
    "other": (),
}

Note = tuple[int, float, float]  # MIDI number (-1: unpitched), onset in the measure and duration in quarter notes
Staff = list["Counter[Note]"]


@dataclass(frozen=True)
class PageScore:
    """Errors of one page, or of several pages together.

    Attributes:
        edits: edits between the scores.
        n_truth, n_found: symbols of the truth and of the prediction.
        notes_right, notes_truth, notes_found: notes that are right, of the truth and of the prediction.
        seconds: time of the comparison.
        problem: reason why the prediction is not usable, or "".
        edits_by_kind: edits by kind of symbol, see `EDIT_KINDS`.
    """

    edits: int = 0
    n_truth: int = 0
    n_found: int = 0
    notes_right: int = 0
    notes_truth: int = 0
    notes_found: int = 0
    seconds: float = 0.0
    problem: str = ""
    edits_by_kind: dict[str, int] = field(default_factory=dict)

    @property
    def omr_ned(self) -> float:
        """Edits per symbol of both scores, in percent."""
        symbols = self.n_truth + self.n_found
        return 100 * self.edits / symbols if symbols else 0.0

    @property
    def note_f1(self) -> float:
        """F1 score of the notes, in percent."""
        notes = self.notes_truth + self.notes_found
        return 200 * self.notes_right / notes if notes else 0.0


def pool_scores(scores: Sequence[PageScore]) -> PageScore:
    """Return the sums over pages; `problem` is the number of pages without a usable prediction."""
    names = ("edits", "n_truth", "n_found", "notes_right", "notes_truth", "notes_found", "seconds")
    sums: dict[str, Any] = {name: sum(getattr(score, name) for score in scores) for name in names}
    problems = sum(bool(score.problem) for score in scores)
    kinds: Counter[str] = sum((Counter(score.edits_by_kind) for score in scores), Counter())
    sums["edits_by_kind"] = dict(kinds)
    return PageScore(**sums, problem=f"{problems} without a usable prediction" if problems else "")


def score_page(
    truth: Path, prediction: Path | None, without: Sequence[str] = (), timeout: float = TIMEOUT
) -> PageScore:
    """Compare a prediction with the truth in a process of its own, because musicdiff is slow on dense wrong pages.

    Args:
        truth: MusicXML file.
        prediction: MusicXML file; None if the page was not read.
        without: kinds of symbols to leave out, such as "lyrics".
        timeout: seconds after which the comparison is stopped.

    Raises:
        ValueError: the truth cannot be measured, or a kind of symbols is unknown.
    """
    _detail(without)
    score = _in_process(truth, prediction, tuple(without), timeout)
    if score is None:
        raise ValueError(f"{truth}: cannot be compared; expected a MusicXML score")
    return score


def compare(truth: Path, prediction: Path | None, without: Sequence[str] = ()) -> PageScore:
    """Compare a prediction with the truth in this process.

    Args:
        truth: MusicXML file.
        prediction: MusicXML file; None: the page counts as not read.
        without: kinds of symbols to leave out.
    """
    base = _measure_truth(truth, without)[0]
    return base if prediction is None else _compare(truth, prediction, without, lambda _: None)


def _measure_truth(truth: Path, without: Sequence[str]) -> tuple[PageScore, Any, list[Staff]]:
    from musicdiff.annotation import AnnScore

    score = _load(truth)
    annotated = AnnScore(score, _detail(without))
    notes = notes_of(score)
    size = annotated.notation_size()
    problem = "no prediction"
    return PageScore(size, size, 0, 0, _count(notes), 0, 0.0, problem), annotated, notes


def _compare(truth: Path, prediction: Path, without: Sequence[str], report: Callable[[PageScore], None]) -> PageScore:
    """Compare two scores and report intermediate results, which are valid if the comparison is stopped."""
    from musicdiff.annotation import AnnScore
    from musicdiff.comparison import Comparison

    started = time.perf_counter()
    base, annotated, notes = _measure_truth(truth, without)
    report(replace(base, problem="stopped"))
    try:
        score = _load(prediction)
        if not len(score.parts):
            raise ValueError("has no parts")
        found = AnnScore(score, _detail(without))
    except Exception as error:  # of any type: a parser may fail in every way
        return replace(base, problem=f"unreadable: {type(error).__name__}: {error}"[:200])
    others = notes_of(score)
    known = replace(base, notes_right=count_right(notes, others), notes_found=_count(others))
    report(replace(known, problem="stopped"))
    size = found.notation_size()
    if not size:
        return replace(known, problem="empty")
    operations, edits = Comparison.annotated_scores_diff(found, annotated)
    seconds = round(time.perf_counter() - started, 1)
    return replace(known, edits=edits, n_found=size, seconds=seconds, problem="", edits_by_kind=edit_kinds(operations))


def edit_kinds(operations: Sequence[Any]) -> dict[str, int]:
    """Return the costs of the operations of musicdiff by kind of symbol.

    Args:
        operations: tuples of a name, the two symbols and the cost.
    """
    costs: Counter[str] = Counter()
    for name, _, _, cost, *_ in operations:
        costs[next((kind for kind, words in EDIT_KINDS.items() if any(w in name for w in words)), "other")] += cost
    return dict(costs)


def _detail(without: Sequence[str]) -> Any:
    """Return musicdiff's level of detail without some kinds of symbols."""
    from musicdiff.detaillevel import DetailLevel

    kinds = {kind.name.lower(): kind for kind in DetailLevel if kind.name}
    detail: Any = DetailLevel.AllObjects
    for name in without:
        if name.lower() not in kinds:
            raise ValueError(f"without: {name!r} is unknown; expected some of {', '.join(sorted(kinds))}")
        detail &= ~kinds[name.lower()]
    return detail


def _load(path: Path) -> Any:
    import music21

    score = music21.converter.parse(path, forceSource=True)
    return score.scores[0] if isinstance(score, music21.stream.Opus) else score


def notes_of(score: Any) -> list[Staff]:
    """Return the notes of a music21 score by staff and measure; noteheads count as written, grace notes last 0."""
    from music21 import harmony, stream

    def notes(measure: Any) -> Counter[Note]:
        found: Counter[Note] = Counter()
        for element in measure.recurse().notes:
            if isinstance(element, harmony.Harmony):
                continue
            onset = round(float(element.getOffsetInHierarchy(measure)), _TIME_DIGITS)
            length = round(float(element.duration.quarterLength), _TIME_DIGITS)
            pitches = [pitch.midi for pitch in getattr(element, "pitches", ())] or [-1]
            found.update((pitch, onset, length) for pitch in pitches)
        return found

    return [[notes(measure) for measure in part.getElementsByClass(stream.Measure)] for part in score.parts]


def _count(staves: Sequence[Staff]) -> int:
    return sum(measure.total() for staff in staves for measure in staff)


def count_right(truth: Sequence[Staff], found: Sequence[Staff]) -> int:
    """Return the number of notes that are right under the best alignment of the measures.

    Args:
        truth, found: notes by staff and measure.
    """
    if len(truth) == len(found):
        pairs = [(k, k) for k in range(len(truth))]
    else:
        bags = [[Counter(note[0] for m in staff for note in m.elements()) for staff in side] for side in (truth, found)]
        pairs = align(len(truth), len(found), lambda i, j: (bags[0][i] & bags[1][j]).total())[1]
    rows = max((len(truth[i]) for i, _ in pairs), default=0)
    columns = max((len(found[j]) for _, j in pairs), default=0)

    def right(a: int, b: int) -> int:
        both = [(truth[i][a], found[j][b]) for i, j in pairs if a < len(truth[i]) and b < len(found[j])]
        return sum((one & other).total() for one, other in both)

    return align(rows, columns, right)[0]


def align(n_rows: int, n_columns: int, gain: Callable[[int, int], int]) -> tuple[int, list[tuple[int, int]]]:
    """Return the largest total gain of a monotone matching of rows and columns, and the matched pairs.

    Args:
        n_rows, n_columns: sizes of the two sequences.
        gain: gain of matching a row with a column. Costs n_rows * n_columns calls.
    """
    best = [[0] * (n_columns + 1) for _ in range(n_rows + 1)]
    for i in range(1, n_rows + 1):
        for j in range(1, n_columns + 1):
            best[i][j] = max(best[i - 1][j], best[i][j - 1], best[i - 1][j - 1] + gain(i - 1, j - 1))
    pairs = []
    i, j = n_rows, n_columns
    while i > 0 and j > 0:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return best[n_rows][n_columns], pairs[::-1]


def _in_process(truth: Path, prediction: Path | None, without: tuple[str, ...], timeout: float) -> PageScore | None:
    """Run a comparison in a process and return its last result, which is intermediate if it ran too long."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, truth, prediction, without), daemon=True)
    process.start()
    sender.close()
    end = time.monotonic() + timeout
    result: PageScore | None = None
    with contextlib.suppress(EOFError):
        while receiver.poll(max(0.0, end - time.monotonic())):
            result = receiver.recv()
    late = process.is_alive() and time.monotonic() >= end
    if late:
        process.kill()
    process.join()
    if result is not None and result.problem == "stopped":
        reason = f"not compared within {timeout:g} s" if late else "the comparison failed"
        result = replace(result, problem=reason)
    return result


def _child(sender: Connection, truth: Path, prediction: Path | None, without: tuple[str, ...]) -> None:
    with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(open(os.devnull, "w")):  # noqa: PTH123
        if prediction is None:
            sender.send(_measure_truth(truth, without)[0])
        else:
            sender.send(_compare(truth, prediction, without, sender.send))


def find_pages(folder: Path) -> dict[str, Path]:
    """Return the MusicXML files of a folder by stem."""
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}


def main() -> None:
    """Print a table of pages and the pooled figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path, help="folder of MusicXML files that were read")
    parser.add_argument("truths", type=Path, help="folder of MusicXML files of the same stems")
    parser.add_argument("--without", nargs="*", default=[], metavar="KIND", help="kinds of symbols to leave out")
    parser.add_argument("--jobs", type=int, default=1, help="pages to compare at the same time")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds per page")
    parser.add_argument("--json", type=Path, default=None, help="file for the figures")
    options = parser.parse_args()
    truths, found = find_pages(options.truths), find_pages(options.predictions)
    if not truths:
        parser.error(f"{options.truths}: has no MusicXML files; expected one per page")

    def one(name: str) -> PageScore:
        return score_page(truths[name], found.get(name), options.without, options.timeout)

    with ThreadPoolExecutor(options.jobs) as executor:
        scores = dict(zip(truths, executor.map(one, truths), strict=True))
    total = pool_scores(list(scores.values()))
    width = max(map(len, [*scores, "pooled"]))
    print(f"{'page':{width}}   truth   found   edits  OMR-NED  note F1  seconds")
    for name, score in [*scores.items(), ("pooled", total)]:
        print(
            f"{name:{width}}  {score.n_truth:6}  {score.n_found:6}  {score.edits:6}  {score.omr_ned:7.2f}  "
            f"{score.note_f1:7.2f}  {score.seconds:7.1f}  {score.problem}".rstrip()
        )
    if options.json is not None:
        rows = {name: {**asdict(s), "omr_ned": s.omr_ned, "note_f1": s.note_f1} for name, s in scores.items()}
        write_json(options.json, {"pages": rows, "omr_ned": total.omr_ned, "note_f1": total.note_f1}, indent=1)


if __name__ == "__main__":
    main()

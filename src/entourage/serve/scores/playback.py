"""Playback of a score: its tones, and the places of the cursor on the scan, by time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from entourage.read.formats.midi import part_tones, playing_order
from entourage.read.score import Measure, Score, measure_onsets


def playback_of(score: Score) -> dict[str, Any]:
    """Return the tones and the path of the cursor of a score.

    Args:
        score: the music.

    Returns:
        "tones": rows of start, end (in quarter notes, with repeats), MIDI pitch, velocity, part and staff, in order of
        time; "measures": rows of start, end and position of the measure in the score, as they are played; "places": for
        each measure of the score, rows of the time within it and x in pixels of its page, from left to right.
    """
    onsets = measure_onsets(score)
    lengths = [end - start for start, end in itertools.pairwise(onsets)]
    order = playing_order(score.parts[0].measures) if score.parts else []
    starts = list(itertools.accumulate((lengths[m] for m in order), initial=Fraction(0)))
    tones = [
        [float(tone.start), float(tone.end), tone.pitch, tone.velocity, p, tone.staff]
        for p, part in enumerate(score.parts)
        for tone in part_tones(part, order, starts)
    ]
    played = [[float(a), float(b), m] for (a, b), m in zip(itertools.pairwise(starts), order, strict=True)]
    columns = list(zip(*(part.measures for part in score.parts), strict=True))
    places = [_places(column, length) for column, length in zip(columns, lengths, strict=True)]
    return {"tones": sorted(tones), "measures": played, "places": places}


def _places(column: Sequence[Measure], length: Fraction) -> list[list[float]]:
    """Return times and x of a measure: where chords begin, and its right end; both increase."""
    boxes = [box for measure in column for box in measure.boxes]
    if not boxes:
        return []
    right = max(box[2] for box in boxes)
    xs: dict[Fraction, list[float]] = {}
    for chord in (chord for measure in column for chord in measure.chords if not chord.grace):
        if not chord.full_measure:
            heads = [(note.box[0] + note.box[2]) / 2 for note in chord.notes]
            xs.setdefault(chord.onset, []).append(min(heads, default=(chord.box[0] + chord.box[2]) / 2))
    places: list[list[float]] = []
    for time in sorted(xs):
        x = min(xs[time])
        if x < right and time < length and (not places or x > places[-1][1]):
            places.append([float(time), round(x, 1)])
    if not places or places[0][0] > 0:
        places.insert(0, [0.0, round(min(box[0] for box in boxes), 1)])
    return [*places, [float(length), round(right, 1)]]

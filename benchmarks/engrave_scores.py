"""Scores for the benchmarks of engraving: those of a corpus, or composed ones where there is none."""

from __future__ import annotations

import os
from pathlib import Path

from entourage.engrave.scores.archives import ScoreFile, find_scores
from entourage.engrave.scores.composer import compose

CORPUS = "openscore_lieder_mxl_half.zip"


def default_source() -> Path:
    """The corpus in the folder that ENTOURAGE_DATA names; it need not exist."""
    return Path(os.environ.get("ENTOURAGE_DATA", "")) / CORPUS


def some_scores(source: Path, count: int, folder: Path) -> list[ScoreFile]:
    """So many scores, spread over the corpus, or composed into the folder if there is no corpus."""
    if source.exists():
        files = find_scores([source])
        return files[:: max(len(files) // count, 1)][:count]
    composed = folder / "composed"
    composed.mkdir()
    for index in range(count):
        (composed / f"{index}.musicxml").write_text(compose(0, index), encoding="utf-8")
    return find_scores([composed])

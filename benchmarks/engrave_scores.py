"""Scores for the engraving benchmarks: from a corpus, or composed ones without a corpus."""

from __future__ import annotations

import os
from pathlib import Path

from entourage.engrave.scores.archives import ScoreFile, find_scores
from entourage.engrave.scores.composer import compose

CORPUS = "openscore_lieder_mxl_half.zip"


def default_source() -> Path:
    """Return the path of the corpus in the folder ENTOURAGE_DATA; it may not exist."""
    return Path(os.environ.get("ENTOURAGE_DATA", "")) / CORPUS


def some_scores(source: Path, count: int, folder: Path) -> list[ScoreFile]:
    """Return `count` scores, spread evenly over the corpus, or composed into `folder` without a corpus."""
    if source.exists():
        files = find_scores([source])
        return files[:: max(len(files) // count, 1)][:count]
    composed = folder / "composed"
    composed.mkdir()
    for index in range(count):
        (composed / f"{index}.musicxml").write_text(compose(0, index), encoding="utf-8")
    return find_scores([composed])

"""The course of a training, read back from the record that the loop keeps."""

from __future__ import annotations

import json
from pathlib import Path

from entourage.embed.training.task import MONITORED
from entourage.runs.metrics_log import METRICS


def read_course(folder: str | Path) -> dict[str, list[float]]:
    """Recall@1 after each epoch of a run, by the name of the set it was measured on.

    Args:
        folder: as given to `train_embedding` as its run: it holds stage-1, stage-2, ...

    Returns:
        Curves of one length, over all stages, also those in which the backbone waits; empty where nothing was measured.
    """
    curves: dict[str, list[float]] = {}
    stages = sorted(Path(folder).glob("stage-*"), key=lambda path: int(path.name.partition("-")[2]))
    for stage in stages:
        record = stage / METRICS
        for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
            for metric, value in json.loads(line).get("metrics", {}).items():
                name = "validation" if metric == MONITORED else metric.removesuffix(f" {MONITORED}")
                curves.setdefault(name, []).append(value)
    return curves

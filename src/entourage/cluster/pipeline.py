"""The whole way of the verb: read, represent, decide, show. How a network comes to be is in `teach`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entourage import __version__
from entourage.cluster.clustering import LearnedClustering
from entourage.cluster.represent import Items, Kind, represent
from entourage.cluster.sampling.augment import scaled
from entourage.cluster.show import clustering_sections
from entourage.io.writing import atomic_path, check_outputs, write_json
from entourage.report.page import write_page

COMMAND = "cluster run"
OUTPUTS = ("clusters.csv", "report.html", "summary.json")


@dataclass(frozen=True)
class RunJob:
    """What is to be clustered and how.

    Attributes:
        source: a table of points, or a folder of images or sounds.
        out: the folder to write to.
        model: a file, or the name of a network that comes with the package.
        n_clusters: their number, if it is known.
        k_max: the most there may be; None for as many as the network was trained with.
        set_size: items that are looked at together; None for as many as the network was trained with.
        device: where to compute.
        seed: draws the core of large data.
        progress: show bars; None: only on a terminal.
    """

    source: Path
    out: Path
    model: str = "points"
    n_clusters: int | None = None
    k_max: int | None = None
    set_size: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: bool | None = None


def run_source(job: RunJob) -> dict[str, Any]:
    """Clusters the items of a source and writes `clusters.csv`, `report.html` and `summary.json` into the out folder.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    check_outputs(job.out, OUTPUTS, [job.source], maker=COMMAND)
    model = LearnedClustering.load(
        job.model,
        n_clusters=job.n_clusters,
        k_max=job.k_max,
        set_size=job.set_size,
        device=job.device,
        random_state=job.seed,
    )
    notes, shape = model.network_.notes, model.network_.shape
    kind: Kind = "points" if len(shape) == 1 and not notes.get("backbone") else _pictured(shape, notes)
    items = represent(job.source, kind, backbone=notes.get("backbone", ""), device=job.device, progress=job.progress)
    _check_items(job, items, shape)
    model.predict(_as_seen(items))
    summary = _summary(job, items, model)
    sections = clustering_sections(items, model)
    _write_clusters(job.out / "clusters.csv", items, model)
    title = f"Clusters of {job.source.name}"
    write_page(job.out / "report.html", title, f"{len(items.names)} items, entourage {__version__}", sections)
    write_json(job.out / "summary.json", summary)
    return summary


def _pictured(shape: tuple[int, ...], notes: dict[str, str]) -> Kind:
    return "sounds" if notes.get("items") == "sounds" or shape[0] == 1 else "images"


def _as_seen(items: Items) -> Tensor:
    """The items as the network was trained to see them."""
    if items.kind == "sounds":
        return items.values.unsqueeze(1)  # (n, 128, 128) -> (n, 1, 128, 128)
    return scaled(items.values) if items.values.dtype == torch.uint8 else items.values


def _check_items(job: RunJob, items: Items, shape: tuple[int, ...]) -> None:
    if len(items.names) < 2:
        raise ValueError(f"{job.source}: holds one item; expected two or more to cluster")
    if len(shape) == 1 and items.values.shape[1] != shape[0]:
        raise ValueError(
            f"{job.source}: has {items.values.shape[1]} columns of numbers; model {job.model!r} is for {shape[0]}"
        )


def _write_clusters(path: Path, items: Items, model: LearnedClustering) -> None:
    # Names of files need not be UTF-8: they are written as in the other two, see `write_text`.
    escape = "backslashreplace"
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors=escape) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["item", "cluster", "probability", *(f"p{c}" for c in range(model.n_clusters_))])
        for name, label, row in zip(items.names, model.labels_, model.probabilities_, strict=True):
            writer.writerow([name, int(label), f"{row[label]:.4f}", *(f"{p:.4f}" for p in row)])


def _summary(job: RunJob, items: Items, model: LearnedClustering) -> dict[str, Any]:
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "source": str(job.source),
        "model": job.model,
        "items": len(items.names),
        "clusters": model.n_clusters_,
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters_).tolist(),
        "parts": model.parts_,
        "count_probabilities": [round(float(p), 6) for p in model.count_probabilities_],
        "mean_probability": float(model.probabilities_.max(axis=1).mean()),
        "skipped": [{"item": name, "reason": reason} for name, reason in items.skipped],
    }

"""`entourage label`: a few labels in, labels for everything out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

Metric = Literal["auto", "euclidean", "cosine"]
SKIPPED_SOME = 1  # exit code when all went well but for items that could not be read


def label(
    source: Annotated[Path, typer.Argument(help="A folder of images, or features as .npy, .npz, .csv or .parquet.")],
    labels: Annotated[Path, typer.Option(help="CSV file with the columns item,label for the few you know.")],
    out: Annotated[Path, typer.Option(help="Folder for labels.csv, report.html and summary.json.")],
    prior: Annotated[Path | None, typer.Option(help="CSV file: item, then a column a class; 0 excludes it.")] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"], typer.Option(help="How the game is played.")
    ] = "default",
    neighbours: Annotated[int | None, typer.Option(min=1, help="Neighbours of an item; by default log2 n + 1.")] = None,
    backbone: Annotated[str, typer.Option(help="Network for images: efficientnet-lite0..2 or timm:NAME.")] = (
        "efficientnet-lite1"
    ),
    metric: Annotated[Metric, typer.Option(help="How features compare; auto is cosine for images.")] = "auto",
    suggestions: Annotated[int, typer.Option(min=0, help="How many items to suggest for labelling next.")] = 12,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    cache: Annotated[bool, typer.Option(help="Keep the features of images for the next time.")] = True,
) -> None:
    """Label a whole data set from a handful of labels."""
    from entourage.label.options import preset as named
    from entourage.label.pipeline import LabelJob, label_source

    options = named(preset)
    summary = label_source(
        LabelJob(
            source=source,
            labels=labels,
            out=out,
            prior=prior,
            options=options if neighbours is None else replace(options, n_neighbors=neighbours),
            backbone=backbone,
            metric=metric,
            suggestions=suggestions,
            device=device,
            cache=cache,
        )
    )
    for skipped in summary["skipped"]:
        typer.echo(f"entourage: skipped {skipped['item']}: {skipped['reason']}", err=True)
    sure = "" if summary["mean_confidence"] is None else f", mean confidence {summary['mean_confidence']:.0%}"
    typer.echo(f"{summary['given']} labels given, {summary['found']} found{sure}: {out / 'report.html'}")
    if summary["skipped"]:
        raise typer.Exit(SKIPPED_SOME)

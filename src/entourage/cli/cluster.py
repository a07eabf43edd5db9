"""`entourage cluster`: cluster tables, images or sounds; train a network to cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, Seed, report, report_skipped, resumable, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types

cluster = typer.Typer(help="Cluster tables, images or sounds; train networks to cluster.", no_args_is_help=True)


@cluster.command()
def run(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A table (.csv, .npy, ...), or a folder of images or sounds."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for clusters.csv, report.html and summary.json.")] = Path("found"),
    model: Annotated[str, typer.Option(help="tables, points, or a file from `cluster train`.")] = "tables",
    n_clusters: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters; estimated if left out.", show_default=False)
    ] = None,
    max_clusters: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of clusters.", show_default="that of the network's training"),
    ] = None,
    set_size: Annotated[
        int | None,
        typer.Option(min=4, help="Items per set; more items are clustered in subsets.", show_default="the network's"),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Cluster tables, images or sounds, and estimate the number of clusters."""
    from entourage.cluster.pipeline import run_source
    from entourage.report.page import pluralize

    summary = run_source(
        source,
        out,
        model=model,
        n_clusters=n_clusters,
        k_max=max_clusters,
        set_size=set_size,
        device=device,
        seed=seed,
    )
    report(summary)
    probability = summary["count_probabilities"][summary["clusters"] - 1] if n_clusters is None else None
    subsets = "" if summary["parts"] == 1 else f", mean over {summary['parts']} subsets"
    note = "" if probability is None else f" (P(k) {probability:.0%}{subsets})"
    typer.echo(f"{summary['items']} items, {pluralize(summary['clusters'], 'clusters')}{note}: {out / 'report.html'}")
    report_skipped(skipped_items(summary))


@cluster.command()
@resumable()
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder of images or sounds, one folder per class; a table; or points: 2D shapes."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the network.")],
    labels: Annotated[Path | None, typer.Option(help="CSV file with the columns item,label.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="CSV file with the columns first,second,same.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Trained network to start from: points, or a file.")
    ] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"] | None,
        typer.Option(help="Architecture and loss of a new network.", show_default="default"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps.", show_default="4000; 20000 for points")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Training time in minutes, instead of steps.", show_default=False)
    ] = None,
    config: Annotated[ConfigFile | None, config_option("entourage.cluster.train:TrainConfig")] = None,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Train a network on examples of clusters. A stopped training resumes when the command is repeated."""
    from entourage.cluster.train import TrainConfig, train_source
    from entourage.report.page import pluralize

    if start is not None and preset is not None:
        raise ValueError("--from and --preset: both given; expected one, a trained network has its own preset")
    result = train_source(
        TrainConfig(
            source,
            out,
            labels=labels,
            pairs=pairs,
            start=start,
            preset=preset or "default",
            steps=steps,
            minutes=minutes,
            device=device,
            seed=seed,
            **config_values(config, field_types(TrainConfig)),
        )
    )
    report(result)
    scores = f"{result['mr']:.1%} misclassified, NMI {result['nmi']:.3f}"
    typer.echo(f"{pluralize(result['steps'], 'steps')}; on {result['measured_on']} {scores}: {out}")
    report_skipped(skipped_items(result))

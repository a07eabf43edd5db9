"""`entourage cluster`: learn from examples what belongs together, then find it in what was never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, Seed, resumable, skipped_in, tell_skipped

cluster = typer.Typer(help="Learn to cluster from examples, and cluster.", no_args_is_help=True)


@cluster.command()
def run(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A table of points (.csv, .npy...), or a folder of images or sounds."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for clusters.csv, report.html and summary.json.")] = Path("found"),
    model: Annotated[str, typer.Option(help="points, or a file that `cluster train` wrote.")] = "points",
    n_clusters: Annotated[int | None, typer.Option(min=1, help="Their number, if you know it.")] = None,
    max_clusters: Annotated[
        int | None, typer.Option(min=1, help="The most there may be; by default what the model was trained with.")
    ] = None,
    set_size: Annotated[int | None, typer.Option(min=4, help="Items looked at together; more go in parts.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Cluster points, images or sounds, and find how many clusters there are."""
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
    probability = summary["count_probabilities"][summary["clusters"] - 1] if n_clusters is None else None
    parts = "" if summary["parts"] == 1 else f", the mean of {summary['parts']} parts"
    note = "" if probability is None else f" (P(k) {probability:.0%}{parts})"
    typer.echo(f"{summary['items']} items, {pluralize(summary['clusters'], 'clusters')}{note}: {out / 'report.html'}")
    tell_skipped(skipped_in(summary))


@cluster.command()
@resumable()
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder of images or sounds, a folder a class; a table; or points: 2D shapes."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the network.")],
    labels: Annotated[Path | None, typer.Option(help="CSV file with the columns item,label.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="CSV file with the columns first,second,same.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="A network to begin with: points, or a file.")] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"] | None,
        typer.Option(help="A new network and its loss; default if left out."),
    ] = None,
    metric: Annotated[
        Literal["none", "euclidean", "diagonal", "full"], typer.Option(help="The optional metric block.")
    ] = "none",
    backbone: Annotated[str, typer.Option(help="Network that looks at images first: efficientnet-lite0..2, ...")] = "",
    clusters: Annotated[int | None, typer.Option(min=1, help="The most clusters of a set.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Minutes of training, in place of steps.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Train a network on examples of what belongs together; a command that was stopped goes on when repeated."""
    from entourage.cluster.train import TrainConfig, train_source
    from entourage.report.page import pluralize

    if start is not None and preset is not None:
        raise ValueError("--from and --preset are given; expected one: a network to begin with has its own")
    config = TrainConfig(
        source,
        out,
        labels=labels,
        pairs=pairs,
        start=start,
        preset=preset or "default",
        metric=metric,
        backbone=backbone,
        k_max=clusters,
        steps=steps,
        minutes=minutes,
        device=device,
        seed=seed,
    )
    result = train_source(config)
    scores = f"{result['mr']:.1%} misclassified, NMI {result['nmi']:.3f}"
    typer.echo(f"{pluralize(result['steps'], 'steps')}; on {result['measured_on']} {scores}: {out}")
    tell_skipped(skipped_in(result))

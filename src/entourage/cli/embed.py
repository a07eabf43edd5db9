"""`entourage embed`: embeddings for retrieval and clustering, trained, measured and searched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, Seed, resumable, skipped_in, tell_skipped

RecipeName = Literal["default", "thesis", "original-cub", "original-cars", "original-sop"]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A folder of images, a pack (.npz), or a data set by name: cub200, cars196, sop, ..."
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained run.")]
Nmi = Annotated[bool, typer.Option(help="Also cluster the embeddings and compare clusters with classes.")]

embed = typer.Typer(help="Embeddings: train, measure and search them.", no_args_is_help=True)


@embed.command()
@resumable()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="The run's folder: networks, index, report.html, summary.json.")],
    recipe: Annotated[RecipeName, typer.Option(help="How to train.")] = "default",
    loss: Annotated[str | None, typer.Option(help="Another loss: cross-entropy, proxy-anchor, triplet, ...")] = None,
    backbone: Annotated[
        str, typer.Option(help="Network to start from: efficientnet-lite0..2, timm:NAME or bn-inception:FILE.")
    ] = "efficientnet-lite1",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Instead of the recipe's, beside the one in which the default's backbone waits."),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    size: Annotated[int | None, typer.Option(min=32, max=1024, help="Side of the images the network sees.")] = None,
    ensemble: Annotated[int, typer.Option(min=1, help="Number of networks whose embeddings are concatenated.")] = 1,
    hold_out: Annotated[float, typer.Option(min=0, max=0.9, help="Share of classes that choose the weights.")] = 0.1,
    trials: Annotated[
        int, typer.Option(min=0, help="Recipes to draw and try; the best on held-out classes is then trained on all.")
    ] = 0,
    seed: Seed = 0,
    nmi: Nmi = True,
    device: Device = "auto",
) -> None:
    """Train embeddings; stopped and called again, it continues."""
    from entourage.embed.pipeline import TrainConfig, train_run
    from entourage.embed.report import format_table, metrics_table
    from entourage.embed.training.recipes import recipe_preset, with_epochs, with_learning_rate, with_loss

    training_recipe = replace(recipe_preset(recipe), seed=seed)
    if loss is not None:
        training_recipe = with_loss(training_recipe, loss)
    if epochs is not None:
        training_recipe = with_epochs(training_recipe, epochs)
    if learning_rate is not None:
        training_recipe = with_learning_rate(training_recipe, learning_rate)
    if size is not None:
        training_recipe = replace(training_recipe, size=size)
    summary = train_run(
        TrainConfig(
            data=data,
            out=out,
            recipe=training_recipe,
            backbone=backbone,
            ensemble=ensemble,
            hold_out=hold_out,
            trials=trials,
            nmi=nmi,
            device=device,
        )
    )
    typer.echo(format_table(metrics_table(summary["metrics"])))
    if trials:
        best = summary["trials"][0]["recall@1"]
        typer.echo(f"The best of {trials} trials finds {100 * best:.1f} % of the held-out images at once")
    typer.echo(f"Trained on {summary['images']['training']} images: {out / 'report.html'}")
    tell_skipped(skipped_in(summary))


@embed.command(name="eval")
def evaluate(
    run_dir: RunDir,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Folder for report.html and metrics.json; RUN/eval if none.")] = None,
    split: Annotated[
        Literal["auto", "all", "training", "test"], typer.Option(help="auto: the test split, or all if there is none.")
    ] = "auto",
    flip: Annotated[bool, typer.Option(help="Add the embeddings of mirror images.")] = False,
    nmi: Nmi = True,
    device: Device = "auto",
) -> None:
    """Measure a trained run on a set of images."""
    from entourage.embed.pipeline import evaluate_run
    from entourage.embed.report import format_table, metrics_table

    folder = run_dir / "eval" if out is None else out
    summary = evaluate_run(run_dir, data, folder, split=split, flip=flip, nmi=nmi, device=device)
    typer.echo(format_table(metrics_table({summary["data"]: summary["metrics"]})))
    typer.echo(f"{summary['images']} images of {summary['classes']} classes: {folder / 'report.html'}")
    tell_skipped(skipped_in(summary))


@embed.command()
def search(
    run_dir: RunDir,
    data: Data,
    queries: Annotated[list[str], typer.Argument(metavar="QUERY", help="Image files, or items of the data.")],
    top_k: Annotated[int, typer.Option(min=1, help="Number of images to find for each query.")] = 8,
    out: Annotated[Path | None, typer.Option(help="HTML file for a picture of what was found.")] = None,
    device: Device = "auto",
) -> None:
    """Find the images that are most like a query."""
    from entourage.embed.search import search_run

    result = search_run(run_dir, data, queries, top_k=top_k, out=out, device=device)
    for query, hits in result.hits:
        typer.echo(query)
        for rank, hit in enumerate(hits, start=1):
            typer.echo(f"{rank:4}  {hit.cosine:.3f}  {hit.label}  {hit.item}")
    if out is not None:
        typer.echo(f"The picture is in {out}")
    tell_skipped(result.skipped)

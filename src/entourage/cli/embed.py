"""`entourage embed`: train, evaluate and search embeddings of images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, OptionalSeed, report_skipped, resumable, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types

RecipeName = Literal["default", "thesis", "original-cub", "original-cars", "original-sop"]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images, an image archive (.npz), or the name of a data set: cub200, cars196, ...",
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")]

embed = typer.Typer(help="Train, evaluate and search embeddings of images.", no_args_is_help=True)


@embed.command()
@resumable()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the run: networks, index, report.html, summary.json.")],
    recipe: Annotated[RecipeName, typer.Option(help="Preset of the training.")] = "default",
    loss: Annotated[
        str | None,
        typer.Option(help="group, cross-entropy, proxy-anchor, triplet, ...", show_default="the recipe's"),
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network: efficientnet-lite0..2, timm:NAME or bn-inception:FILE.")
    ] = "efficientnet-lite1",
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training epochs, in addition to the epoch that trains only the head in the default recipe.",
            show_default="the recipe's",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of the first metric stage; those of all other stages change by the same factor.",
            show_default="the recipe's",
        ),
    ] = None,
    ensemble: Annotated[int, typer.Option(min=1, help="Number of networks whose embeddings are concatenated.")] = 1,
    trials: Annotated[
        int, typer.Option(min=0, help="Random recipes to evaluate on held-out classes; the best is trained on all.")
    ] = 0,
    config: Annotated[ConfigFile | None, config_option("entourage.embed.pipeline:TrainConfig")] = None,
    device: Device = "auto",
    seed: OptionalSeed = None,
) -> None:
    """Train embeddings. A stopped training resumes when the command is repeated."""
    from entourage.embed.pipeline import TrainConfig, train_run
    from entourage.embed.report import format_table, metrics_table
    from entourage.embed.training.recipes import recipe_preset, with_epochs, with_learning_rate, with_loss

    values = config_values(config, field_types(TrainConfig), recipe=recipe_preset(recipe))
    training_recipe = values.pop("recipe")
    if seed is not None:
        training_recipe = replace(training_recipe, seed=seed)
    if loss is not None:
        training_recipe = with_loss(training_recipe, loss)
    if epochs is not None:
        training_recipe = with_epochs(training_recipe, epochs)
    if learning_rate is not None:
        training_recipe = with_learning_rate(training_recipe, learning_rate)
    summary = train_run(
        TrainConfig(
            data=data,
            out=out,
            recipe=training_recipe,
            backbone=backbone,
            ensemble=ensemble,
            trials=trials,
            device=device,
            **values,
        )
    )
    typer.echo(format_table(metrics_table(summary["metrics"])))
    if trials:
        best = summary["trials"][0]["recall@1"]
        typer.echo(f"best of {trials} trials: Recall@1 {best:.1%} on held-out classes")
    typer.echo(f"trained on {summary['images']['training']} images: {out / 'report.html'}")
    report_skipped(skipped_items(summary))


@embed.command(name="eval")
def evaluate(
    run_dir: RunDir,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html and metrics.json.", show_default="RUN/eval")
    ] = None,
    split: Annotated[
        Literal["auto", "all", "training", "test"],
        typer.Option(help="Images to evaluate; auto: the test split, otherwise all."),
    ] = "auto",
    flip: Annotated[bool, typer.Option(help="Add the embedding of the mirror image to that of each image.")] = False,
    nmi: Annotated[bool, typer.Option(help="Cluster the embeddings and compare clusters with classes.")] = True,
    device: Device = "auto",
) -> None:
    """Evaluate a trained run on a set of images."""
    from entourage.embed.pipeline import evaluate_run
    from entourage.embed.report import format_table, metrics_table

    folder = run_dir / "eval" if out is None else out
    summary = evaluate_run(run_dir, data, folder, split=split, flip=flip, nmi=nmi, device=device)
    typer.echo(format_table(metrics_table({summary["data"]: summary["metrics"]})))
    typer.echo(f"{summary['images']} images of {summary['classes']} classes: {folder / 'report.html'}")
    report_skipped(skipped_items(summary))


@embed.command()
def search(
    run_dir: RunDir,
    data: Data,
    queries: Annotated[list[str], typer.Argument(metavar="QUERY", help="Image files, or items of DATA.")],
    top_k: Annotated[int, typer.Option(min=1, help="Number of images to find for each query.")] = 8,
    out: Annotated[
        Path | None, typer.Option(help="HTML file for a picture of the results.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Find the images nearest to each query."""
    from entourage.embed.search import search_run

    result = search_run(run_dir, data, queries, top_k=top_k, out=out, device=device)
    for query, hits in result.hits:
        typer.echo(query)
        for rank, hit in enumerate(hits, start=1):
            typer.echo(f"{rank:4}  {hit.cosine:.3f}  {hit.label}  {hit.item}")
    if out is not None:
        typer.echo(f"picture: {out}")
    report_skipped(result.skipped)

"""`entourage label`: a few labels in, labels for everything and a classifier out; `label predict` asks it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from entourage.cli.skipped import skipped_in, tell_skipped

if TYPE_CHECKING:
    from entourage.label.classify import AugmentOptions

Metric = Literal["auto", "euclidean", "cosine"]


class _LabelsByDefault(TyperGroup):
    """`entourage label SOURCE ...` labels; only the word `predict` asks for something else."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands:
            args = ["source", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_LabelsByDefault, no_args_is_help=True)


@app.command("source")
def label(
    source: Annotated[Path, typer.Argument(help="A folder of images, or features as .npy, .npz, .csv or .parquet.")],
    labels: Annotated[Path, typer.Option(help="CSV file with the columns item,label for the few you know.")],
    out: Annotated[Path, typer.Option(help="Folder for labels.csv, report.html and summary.json.")],
    prior: Annotated[Path | None, typer.Option(help="CSV file: item, then a column a class; 0 excludes it.")] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"], typer.Option(help="How the game is played, and the network trained.")
    ] = "default",
    neighbours: Annotated[int | None, typer.Option(min=1, help="Neighbours of an item; by default log2 n + 1.")] = None,
    backbone: Annotated[str, typer.Option(help="Network for images: efficientnet-lite0..2 or timm:NAME.")] = (
        "efficientnet-lite1"
    ),
    metric: Annotated[Metric, typer.Option(help="How features compare; auto is cosine for images.")] = "auto",
    suggestions: Annotated[int, typer.Option(min=0, help="How many items to suggest for labelling next.")] = 12,
    train: Annotated[bool, typer.Option("--train", help="Train a classifier too: classifier.safetensors.")] = False,
    size: Annotated[int | None, typer.Option(min=32, help="With --train: side of the images in pixels.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="With --train: most rounds of game and training.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="With --train: epochs of each round.")] = None,
    learn: Annotated[
        Literal["consistency", "hard", "soft", "weighted"] | None,
        typer.Option(help="With --train: views that must agree, or found labels as given, as chances, as far as sure."),
    ] = None,
    layers: Annotated[
        Literal["late", "all"] | None, typer.Option(help="With --train: which layers of the network are trained.")
    ] = None,
    mirror: Annotated[
        bool | None,
        typer.Option(
            "--mirror/--no-mirror",
            help="With --train: whether a mirror image shows the same thing. Default: yes; say no for digits and text.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    cache: Annotated[bool, typer.Option(help="Keep the features of images for the next time.")] = True,
) -> None:
    """Label a whole data set from a handful of labels, and train a classifier on it.

    `entourage label predict CLASSIFIER IMAGES...` asks the classifier.
    """
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
            train=_training(preset, neighbours, size, rounds, epochs, learn, layers, mirror) if train else None,
            backbone=backbone,
            metric=metric,
            suggestions=suggestions,
            device=device,
            cache=cache,
        )
    )
    sure = "" if summary["mean_confidence"] is None else f", mean confidence {summary['mean_confidence']:.0%}"
    typer.echo(f"{summary['given']} labels given, {summary['found']} found{sure}: {out / 'report.html'}")
    if train:
        typer.echo(f"a classifier of {len(summary['classifier']['classes'])} classes: {out / 'classifier.safetensors'}")
    tell_skipped(skipped_in(summary))


@app.command()
def predict(
    classifier: Annotated[Path, typer.Argument(help="A classifier.safetensors of `entourage label --train`.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, and folders of them.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default it is printed.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
) -> None:
    """Classify images with a trained classifier."""
    from entourage.label.classify.ask import predict_images, write_predictions

    paths, predictions = predict_images(classifier, images, out=out, device=device)
    write_predictions(sys.stdout if out is None else out, paths, predictions)
    tell_skipped(predictions.failures)


def _training(
    preset: str,
    neighbours: int | None,
    size: int | None,
    rounds: int | None,
    epochs: int | None,
    learn: Literal["consistency", "hard", "soft", "weighted"] | None,
    layers: Literal["late", "all"] | None,
    mirror: bool | None,
) -> AugmentOptions:
    """The preset's options, changed where the user said so."""
    from entourage.label.classify import preset as named

    options = named(preset)
    if learn == "consistency":
        options = replace(options, method="consistency")
    elif learn is not None:
        options = replace(options, method="labels", trust=learn)
    if epochs is not None:
        options = replace(options, training=replace(options.training, epochs=epochs))
    changes: dict[str, Any] = {"neighbours": neighbours, "size": size, "rounds": rounds, "trained": layers}
    changes["mirror"] = mirror
    return replace(options, **{name: value for name, value in changes.items() if value is not None})

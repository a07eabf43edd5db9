"""`entourage label`: a few labels in, labels for everything and a classifier out; `label predict` asks it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from entourage.cli.common import MOST_SEED, Device, resumable, skipped_in, tell_skipped

if TYPE_CHECKING:
    from entourage.label.semi_supervised.options import AugmentOptions

Metric = Literal["auto", "euclidean", "cosine"]


_LABEL, _PREDICT, _RUN = "source", "predict", "run"
_BACKBONE = "efficientnet-lite1"


class _DefaultCommandGroup(TyperGroup):
    """`entourage label SOURCE ...` labels, whatever SOURCE is called; only `predict` asks for something else.

    `run`, which other verbs have here, may be said.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] != [_PREDICT]:
            arguments = args[1:] if args[:1] == [_RUN] else args
            args = [_LABEL, *(arguments or ["--help"])]
        return super().parse_args(ctx, args)


class _DefaultCommand(TyperCommand):
    """A command whose name nobody writes: usage lines have the group's instead."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return super().make_context(parent.info_name, args, parent=parent.parent, **extra)


app = typer.Typer(cls=_DefaultCommandGroup)


@app.command(_LABEL, cls=_DefaultCommand)
def label(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A folder of images, or features as .npy, .npz, .csv or .parquet."),
    ],
    labels: Annotated[Path, typer.Option(help="CSV file with the columns item,label for the few you know.")],
    out: Annotated[Path, typer.Option(help="Folder for labels.csv, report.html and summary.json.")],
    prior: Annotated[Path | None, typer.Option(help="CSV file: item, then a column a class; 0 excludes it.")] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"], typer.Option(help="How the game is played, and the network trained.")
    ] = "default",
    n_neighbors: Annotated[
        int | None, typer.Option(min=1, help="Neighbours of an item; by default log2 n + 1.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"Network for images: efficientnet-lite0..2, timm:NAME or bn-inception:FILE. Default: {_BACKBONE}."
        ),
    ] = None,
    balance: Annotated[
        bool, typer.Option("--balance", help="Classes are as frequent as among the labels, which were drawn fairly.")
    ] = False,
    metric: Annotated[Metric, typer.Option(help="How features compare; auto is cosine for images.")] = "auto",
    suggestions: Annotated[int, typer.Option(min=0, help="How many items to suggest for labelling next.")] = 12,
    train: Annotated[bool, typer.Option("--train", help="Train a classifier too: classifier.safetensors.")] = False,
    size: Annotated[int | None, typer.Option(min=32, help="With --train: side of the images in pixels.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="With --train: most rounds of game and training.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="With --train: epochs of each round.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="With --train: instead of the preset's.")] = None,
    method: Annotated[
        Literal["consistency", "hard", "soft", "weighted"] | None,
        typer.Option(help="With --train: views that must agree, or found labels as given, as chances, as far as sure."),
    ] = None,
    trainable_layers: Annotated[
        Literal["late", "all"] | None, typer.Option(help="With --train: which layers of the network are trained.")
    ] = None,
    flip: Annotated[
        bool | None,
        typer.Option(
            "--flip/--no-flip",
            help="With --train: whether a mirror image shows the same thing. Default: yes; say no for digits and text.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MOST_SEED, help="With --train: of everything that is drawn. Default: 0.")
    ] = None,
    device: Device = "auto",
    cache: Annotated[bool, typer.Option(help="Keep the features of images for the next time.")] = True,
) -> None:
    """Label a whole data set from a handful of labels, and train a classifier on it.

    `entourage label predict CLASSIFIER IMAGES...` asks the classifier; folders named predict or run are written
    ./predict and ./run.
    """
    training_arguments: dict[str, Any] = {
        "size": size,
        "rounds": rounds,
        "epochs": epochs,
        "learning_rate": learning_rate,
    }
    training_arguments |= {"method": method, "trainable_layers": trainable_layers, "flip": flip, "seed": seed}
    training_arguments = {name: value for name, value in training_arguments.items() if value is not None}
    if not train and (given := [_option(name, value) for name, value in training_arguments.items()]):
        raise ValueError(f"{', '.join(given)}: only for training; expected --train beside it")
    if backbone is not None and source.is_file():
        raise ValueError(f"--backbone {backbone}: only for images, and {source} holds features; expected none")
    from entourage.label.pipeline import LabelConfig, label_source
    from entourage.label.transduction import PRESETS
    from entourage.report.page import pluralize

    changes = {} if n_neighbors is None else {"n_neighbors": n_neighbors}
    with resumable(train):  # labels alone are found anew each time
        summary = label_source(
            LabelConfig(
                source=source,
                labels=labels,
                out=out,
                prior=prior,
                transduction={**PRESETS[preset], **changes},
                balance=balance,
                train=_training_options(preset, n_neighbors, training_arguments) if train else None,
                backbone=backbone or _BACKBONE,
                metric=metric,
                suggestions=suggestions,
                device=device,
                cache=cache,
            )
        )
    confidence = "" if summary["mean_confidence"] is None else f", mean confidence {summary['mean_confidence']:.0%}"
    typer.echo(
        f"{pluralize(summary['given'], 'labels')} given, {summary['found']} found{confidence}: {out / 'report.html'}"
    )
    if train:
        typer.echo(f"a classifier of {len(summary['classifier']['classes'])} classes: {out / 'classifier.safetensors'}")
    tell_skipped(skipped_in(summary))


@app.command(_PREDICT)
def predict(
    classifier: Annotated[
        Path, typer.Argument(metavar="CLASSIFIER", help="A classifier.safetensors of `entourage label --train`.")
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="Image files, and folders of them.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default it is printed.")] = None,
    device: Device = "auto",
) -> None:
    """Classify images with a trained classifier.

    To label a folder named predict, write ./predict.
    """
    from entourage.io.progress import is_main_process
    from entourage.label.pipeline import check_not_label_output
    from entourage.label.semi_supervised.classifier import predict_images, write_predictions
    from entourage.report.page import pluralize

    if out is not None:
        check_not_label_output(out)
    if not is_main_process():  # there is nothing to share
        return
    paths, predictions = predict_images(classifier, images, out=out, device=device)
    write_predictions(sys.stdout if out is None else out, paths, predictions)
    if out is not None:
        typer.echo(f"{pluralize(len(predictions.indices), 'images')} classified: {out}")
    tell_skipped(predictions.failures)


def _option(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    return f"--no-{flag}" if value is False else f"--{flag}"


def _training_options(preset: str, n_neighbors: int | None, arguments: dict[str, Any]) -> AugmentOptions:
    """The preset's options, changed where the user said so."""
    from entourage.label.semi_supervised.options import PRESETS

    options = PRESETS[preset]
    method = arguments.get("method")
    if method == "consistency":
        options = replace(options, method="consistency")
    elif method is not None:
        options = replace(options, method="labels", pseudo_label_mode=method)
    seed = {"seed": arguments["seed"]} if "seed" in arguments else {}  # batches and views have a seed of their own
    loop_options = {name: arguments[name] for name in ("epochs", "learning_rate") if name in arguments}
    changes = {name: arguments[name] for name in ("size", "rounds", "flip") if name in arguments}
    return replace(
        options,
        **changes,
        n_neighbors=options.n_neighbors if n_neighbors is None else n_neighbors,
        trainable_layers=arguments.get("trainable_layers", options.trainable_layers),
        method_options=replace(options.method_options, **seed),
        training=replace(options.training, **loop_options, **seed),
    )

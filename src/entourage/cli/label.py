"""`entourage label`: label a data set from a few labels and train a classifier; `label predict` applies it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from entourage.cli.common import MAX_SEED, Device, report, report_skipped, resumable, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types
from entourage.cli.output import data_stream
from entourage.cli.serve import Browser, Port

if TYPE_CHECKING:
    from entourage.label.pipeline import LabelConfig
    from entourage.label.semi_supervised.options import AugmentOptions

_LABEL, _PREDICT, _RUN = "source", "predict", "run"
_BACKBONE = "efficientnet-lite1"


class _DefaultCommandGroup(TyperGroup):
    """A group that reads `entourage label SOURCE ...` as the labelling command unless the first word is `predict`.

    `entourage label run SOURCE ...` is accepted, too, as other groups have a command `run`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] != [_PREDICT]:
            arguments = args[1:] if args[:1] == [_RUN] else args
            args = [_LABEL, *arguments]
        return super().parse_args(ctx, args)


class _DefaultCommand(TyperCommand):
    """A command whose usage lines show the name of its group instead of its own name."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return super().make_context(parent.info_name, args, parent=parent.parent, **extra)


app = typer.Typer(cls=_DefaultCommandGroup)


@app.command(_LABEL, cls=_DefaultCommand, no_args_is_help=True)
def label(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A folder of images, or features as .npy, .npz, .csv or .parquet."),
    ],
    more_sources: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SOURCE...]", help="More features of the same items; all are combined."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV file with the columns item,label: the known labels.", show_default="none, with --serve"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for labels.csv, report.html and summary.json.", show_default="SOURCE-labels, with --serve"
        ),
    ] = None,
    prior: Annotated[
        Path | None, typer.Option(help="CSV file: item, then a column per class; 0 excludes the class.")
    ] = None,
    method: Annotated[
        Literal["auto", "game"] | None,
        typer.Option(
            help="auto: several methods, weighted by hiding given labels; game: the graph transduction game alone.",
            show_default="auto for tables and several sources, otherwise game",
        ),
    ] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"], typer.Option(help="Options of the game and of the training.")
    ] = "default",
    n_neighbors: Annotated[
        int | None, typer.Option(min=1, help="Neighbours of an item in the graph.", show_default="log2 n + 1")
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="Network for images: efficientnet-lite0..2, timm:NAME or bn-inception:FILE; several are combined.",
            show_default=_BACKBONE,
        ),
    ] = None,
    balance: Annotated[
        bool, typer.Option("--balance", help="Keep the class frequencies of the labels, if these are a random sample.")
    ] = False,
    train: Annotated[bool, typer.Option("--train", help="Also train a classifier: classifier.safetensors.")] = False,
    flip: Annotated[
        bool | None,
        typer.Option(
            "--flip/--no-flip",
            help="With --train: whether images keep their class when mirrored; use --no-flip for digits and text.",
            show_default="flip",
        ),
    ] = None,
    student: Annotated[
        bool | None,
        typer.Option(
            "--student/--no-student",
            help="With --train: then train a second network from scratch, at the images' own size.",
            show_default="from 5,000 images on a GPU",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MAX_SEED, help="With --train: random seed.", show_default="0")
    ] = None,
    config: Annotated[ConfigFile | None, config_option("entourage.label.pipeline:LabelConfig")] = None,
    device: Device = "auto",
    serve: Annotated[bool, typer.Option("--serve", help="Label in the browser; --labels is then optional.")] = False,
    port: Port = None,
    browser: Browser = True,
) -> None:
    """Label a data set from a few labels, and train a classifier on it.

    `entourage label predict CLASSIFIER IMAGES...` applies the classifier. To label a folder named predict or run, write
    ./predict or ./run.
    """
    arguments = {"flip": flip, "student": student, "seed": seed}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    train = train or (config is not None and "train" in config.values)
    if not train and (flags := [_flag(name, value) for name, value in arguments.items()]):
        raise ValueError(f"{', '.join(flags)}: only for training; expected --train as well")
    if backbone and source.is_file():
        raise ValueError(
            f"--backbone {backbone[0]}: only for images, but {source} holds features; expected no backbone"
        )
    first_backbone, *more_backbones = backbone or [_BACKBONE]
    if serve and more_backbones:
        raise ValueError(f"--backbone {more_backbones[0]}: a second one with --serve; expected one backbone")
    if serve and (train or prior is not None):
        raise ValueError("--serve: given with --train or --prior; expected these without --serve, afterwards")
    if not serve and (labels is None or out is None):
        missing = " and ".join(flag for flag, value in (("--labels", labels), ("--out", out)) if value is None)
        raise ValueError(f"{missing}: missing; expected --labels and --out, or --serve")
    out = out or Path(f"{source.resolve().stem}-labels")
    if serve:
        game = _served_game(config, preset, n_neighbors, source, out)
        game.update(initial=labels, backbone=first_backbone, device=device)
        _label_in_browser(source, out, game, port, browser)
        return
    from entourage.label.pipeline import label_source
    from entourage.report.page import pluralize

    options = _label_config(
        config,
        preset,
        n_neighbors,
        arguments if train else None,
        source=source,
        more_sources=tuple(more_sources or ()),
        method=method,
        labels=labels or Path("known.csv"),
        out=out,
        prior=prior,
        balance=balance,
        backbone=first_backbone,
        more_backbones=tuple(more_backbones),
        device=device,
    )
    with resumable(train):  # labelling alone starts again each time
        summary = label_source(options)
    report(summary)
    confidence = "" if summary["mean_confidence"] is None else f", mean confidence {summary['mean_confidence']:.0%}"
    page = out / "report.html"
    typer.echo(f"{pluralize(summary['given'], 'labels')} given, {summary['found']} found{confidence}: {page}")
    if train:
        typer.echo(f"a classifier of {len(summary['classifier']['classes'])} classes: {out / 'classifier.safetensors'}")
    report_skipped(skipped_items(summary))


@app.command(_PREDICT)
def predict(
    classifier: Annotated[
        Path, typer.Argument(metavar="CLASSIFIER", help="A classifier.safetensors of `entourage label --train`.")
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="Image files, and folders of them.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write.", show_default="standard output")] = None,
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
    if not is_main_process():  # prediction is not distributed
        return
    paths, predictions = predict_images(classifier, images, out=out, device=device)
    write_predictions(data_stream() if out is None else out, paths, predictions)
    if out is not None:
        typer.echo(f"{pluralize(len(predictions.indices), 'images')} classified: {out}")
    report({"items": paths, "predictions": predictions})
    report_skipped(predictions.failures)


def _served_game(
    config: ConfigFile | None, preset: str, n_neighbors: int | None, source: Path, out: Path
) -> dict[str, Any]:
    """Return the options of the game of `--serve`; where defaults apply, without torch, which takes seconds to load."""
    if config is None and preset == "default":
        return {"transduction": {} if n_neighbors is None else {"n_neighbors": n_neighbors}}
    options = _label_config(config, preset, n_neighbors, None, source=source, labels=out / "known.csv", out=out)
    return {"transduction": options.transduction, "metric": options.metric}


def _label_in_browser(source: Path, out: Path, arguments: dict[str, Any], port: int | None, browser: bool) -> None:
    from entourage.serve.labelling.session import SessionConfig
    from entourage.serve.server import ServeOptions, serve_labelling

    serve_labelling(SessionConfig(source, out, **arguments), ServeOptions(port, browser, log=typer.echo))


def _flag(name: str, value: Any) -> str:
    return f"--no-{name}" if value is False else f"--{name}"


def _label_config(
    config: ConfigFile | None,
    preset: str,
    n_neighbors: int | None,
    training_arguments: dict[str, Any] | None,
    **arguments: Any,
) -> LabelConfig:
    """Combine a preset, a configuration file and the options of the command line, in rising order of precedence."""
    from entourage.label import transduction
    from entourage.label.pipeline import LabelConfig
    from entourage.label.semi_supervised import options

    hints = get_type_hints(transduction.GraphTransduction.__init__)
    defaults = transduction.PRESETS[preset]
    types = {**field_types(LabelConfig), "transduction": {name: hints[name] for name in defaults}}
    values = config_values(config, types, transduction=dict(defaults), train=options.PRESETS[preset])
    if n_neighbors is not None:
        values["transduction"]["n_neighbors"] = n_neighbors
        values["train"] = replace(values["train"], n_neighbors=n_neighbors)
    if training_arguments is None:
        values["train"] = None
    else:
        values["train"] = _training_options(values["train"], training_arguments)
    return LabelConfig(**arguments, **values)


def _training_options(options: AugmentOptions, arguments: dict[str, Any]) -> AugmentOptions:
    """Return training options with the values from the command line in place of the configured ones."""
    changes = {name: value for name, value in arguments.items() if name != "seed"}
    seed = {"seed": arguments["seed"]} if "seed" in arguments else {}  # batches and views have separate seeds
    student = options.student_options
    return replace(
        options,
        **changes,
        method_options=replace(options.method_options, **seed),
        training=replace(options.training, **seed),
        student_options=replace(
            student,
            method_options=replace(student.method_options, **seed),
            training=replace(student.training, **seed),
        ),
    )

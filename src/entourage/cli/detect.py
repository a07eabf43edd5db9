"""`entourage detect`: find the symbols on pages of music; evaluate and train detectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, OptionalSeed, note, report, report_skipped, resumable, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types

detect = typer.Typer(help="Find the symbols on pages of music; evaluate and train detectors.", no_args_is_help=True)

# The names of the included detectors are written out here, because reading them loads torch at every --help.
_MODEL_HELP = "default, muscima (handwriting), or a file from `detect train`."

ClassList = Literal["own", "extended", "full", "v1", "v1-118", "muscima"]


@detect.command()
def run(
    pages: Annotated[
        list[Path],
        typer.Argument(metavar="PAGES", help="Images (PNG, JPEG, TIFF, ...), PDF files, or folders of them."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for detections, drawn pages and report.html.")] = Path("found"),
    model: Annotated[str | None, typer.Option(help=_MODEL_HELP, show_default="default")] = None,
    class_list: Annotated[
        ClassList, typer.Option("--class-list", help="Class list of the results; own: that of the detector.")
    ] = "own",
    threshold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Minimum score of the detections that are written.")
    ] = 0.3,
    interline: Annotated[
        float | None, typer.Option(min=1.0, help="Pixels between staff lines.", show_default="estimated per page")
    ] = None,
    draw: Annotated[bool, typer.Option(help="Draw the pages with their detections.")] = True,
    device: Device = "auto",
) -> None:
    """Find the symbols on pages; write COCO JSON, DeepScores XML, tables and drawn pages."""
    from entourage.detect.pipeline import run_detection
    from entourage.report.page import pluralize

    summary = run_detection(
        pages,
        out,
        model=model,
        class_list=class_list,
        threshold=threshold,
        interline=interline,
        draw=draw,
        device=device,
    )
    report(summary)
    typer.echo(
        f"{pluralize(summary['pages'], 'pages')}, {pluralize(summary['symbols'], 'symbols')}: {out / 'report.html'}"
    )
    if summary["empty"]:
        pages_without = pluralize(summary["empty"], "pages")
        note(f"no detections on {pages_without}; see {out / 'pages.csv'}")
    if summary["unnamed"]:
        unnamed = pluralize(summary["unnamed"], "detections")
        note(f"{unnamed} left out, of classes that the list {class_list} lacks; --class-list own has all classes")
    report_skipped(skipped_items(summary))


@detect.command(name="eval")
def evaluate(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A folder from `entourage engrave`, muscima, or a DeepScoresV2 archive."),
    ],
    split: Annotated[Literal["train", "val", "test", "all"], typer.Option(help="Pages to evaluate on.")] = "test",
    class_list: Annotated[
        ClassList | None,
        typer.Option(
            "--class-list",
            help="Class list of the evaluation.",
            show_default="v1 for the classes of `detect train`, otherwise own",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help=_MODEL_HELP, show_default="default")] = None,
    pages: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of pages, spread over the split.", show_default="all")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for evaluation.json and report.html.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Evaluate a detector: COCO average precision per class, confusions of similar classes, seconds per page."""
    from entourage.detect.pipeline import evaluate_dataset
    from entourage.report.page import pluralize

    evaluation = evaluate_dataset(
        data,
        split=None if split == "all" else split,
        class_list=class_list,
        model=model,
        max_pages=pages,
        out=out,
        device=device,
    )
    report({"means": evaluation.scores.means(), "pages": evaluation.pages, "seconds": evaluation.seconds})
    for row in evaluation.scores.table():
        typer.echo(f"{row[0]:<32}{row[1]:>9}{row[2]:>8}{row[3]:>8}{row[4]:>8}")
    for confusion in evaluation.confusions:
        typer.echo(f"{confusion.family}: {confusion.accuracy:.1%} of the detected symbols have the correct class")
    means = evaluation.scores.means()
    for kind, suffix in (("classes", ""), ("objects", " by instance")):
        scores = ", ".join(f"{name} {100 * means[name + suffix]:.1f}" for name in ("mAP", "AP50", "AP25"))
        typer.echo(f"mean over {kind}: {scores}")
    counts = f"{pluralize(evaluation.pages, 'pages')}, {pluralize(evaluation.objects, 'objects')}"
    typer.echo(f"{counts}, list {evaluation.class_list}, {evaluation.seconds:.2f} s per page")


@detect.command()
@resumable()
def train(
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA", help="Folders from `entourage engrave`; muscima, or its folder or archive."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for detect.safetensors, checkpoints and summary.json.")],
    classes: Annotated[
        Literal["detector", "v1", "muscima"], typer.Option(help="Class list of the detector.")
    ] = "detector",
    start: Annotated[
        Path | None, typer.Option("--from", help="Detector to start from: default, muscima, or a file.")
    ] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"] | None,
        typer.Option(help="Maps, network and losses of a new detector.", show_default="default"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps.", show_default="20000; 4000 for muscima")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Training time in minutes, instead of steps.", show_default=False)
    ] = None,
    staged: Annotated[bool, typer.Option("--staged", help="Train in the stages of the thesis.")] = False,
    config: Annotated[ConfigFile | None, config_option("entourage.detect.training.train:TrainConfig")] = None,
    device: Device = "auto",
    seed: OptionalSeed = None,
) -> None:
    """Train a detector on annotated pages. A stopped training resumes when the command is repeated."""
    from entourage.detect import options
    from entourage.detect.training.task import Recipe
    from entourage.detect.training.train import TrainConfig, train_detector
    from entourage.report.page import pluralize

    if start is not None and preset is not None:
        raise ValueError("--from and --preset: both given; expected one, a trained detector has its own network")
    if steps is not None and minutes is not None:
        raise ValueError("--steps and --minutes: both given; expected one of them")
    default = Recipe.for_handwriting() if classes == "muscima" else Recipe()
    base = None if start is not None else options.preset(preset or "default")
    values = config_values(config, field_types(TrainConfig), recipe=default, options=base)
    if start is not None and values["options"] is not None:
        raise ValueError(
            "--from and the table options: both given; expected one, a trained detector has its own network"
        )
    arguments = {name: value for name, value in (("steps", steps), ("seed", seed)) if value is not None}
    values["recipe"] = replace(values["recipe"], **arguments)
    result = train_detector(
        TrainConfig(
            data,
            out,
            classes=classes,
            start=start,
            preset=preset or "default",
            minutes=minutes,
            staged=staged,
            device=device,
            log=lambda line: typer.echo(line, err=True),
            **values,
        )
    )
    report(result)
    scores = f", mAP {result['map']:.1%}, AP50 {result['ap50']:.1%}" if "map" in result else ""
    typer.echo(
        f"{pluralize(result['pages'], 'pages')}, {pluralize(result['steps'], 'steps')}{scores}: {result['model']}"
    )

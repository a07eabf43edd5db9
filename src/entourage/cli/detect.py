"""`entourage detect`: every symbol of a page of music, with its place and class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, Seed, resumable, skipped_in, tell_skipped

detect = typer.Typer(help="Find every symbol on pages of music.", no_args_is_help=True)

# The detectors that come with the package are not looked up here: that would load torch for every --help.
_MODEL_HELP = "default, muscima (handwriting), or a file that `detect train` wrote; default if left out."

ClassList = Literal["own", "extended", "v1", "v1-118", "muscima"]


@detect.command()
def run(
    pages: Annotated[
        list[Path],
        typer.Argument(metavar="PAGES", help="Images (PNG, JPEG, TIFF...), PDF files, or folders of such."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for boxes, drawn pages and report.html.")] = Path("found"),
    model: Annotated[str | None, typer.Option(help=_MODEL_HELP)] = None,
    class_list: Annotated[
        ClassList, typer.Option("--class-list", help="Under whose names results are written; own: the network's.")
    ] = "own",
    threshold: Annotated[float, typer.Option(min=0.0, max=1.0, help="Least score of what is written.")] = 0.3,
    interline: Annotated[float | None, typer.Option(min=1.0, help="Pixels between staff lines, if you know.")] = None,
    draw: Annotated[bool, typer.Option(help="WindowSample the pages with what was found.")] = True,
    device: Device = "auto",
) -> None:
    """Find the symbols on pages; write COCO's JSON, DeepScores' XML, tables and drawn pages."""
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
    typer.echo(
        f"{pluralize(summary['pages'], 'pages')}, {pluralize(summary['symbols'], 'symbols')}: {out / 'report.html'}"
    )
    if summary["empty"]:
        what = f"nothing was found on {pluralize(summary['empty'], 'pages')}"
        typer.echo(f"entourage: note: {what}; {out / 'pages.csv'} tells what is known of them", err=True)
    if summary["unnamed"]:
        what = f"{pluralize(summary['unnamed'], 'more symbols')} {'was' if summary['unnamed'] == 1 else 'were'} found"
        typer.echo(
            f"entourage: note: {what} that the list {class_list} has no name for; --class-list own has all", err=True
        )
    tell_skipped(skipped_in(summary))


@detect.command(name="eval")
def evaluate(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A folder that `entourage engrave` made; muscima; a DeepScoresV2 archive."),
    ],
    split: Annotated[Literal["train", "val", "test", "all"], typer.Option(help="Which pages.")] = "test",
    class_list: Annotated[
        ClassList | None,
        typer.Option(
            "--class-list",
            help="The class list; if left out, v1 for the 142 classes of detect train, own for a network of others.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help=_MODEL_HELP)] = None,
    pages: Annotated[int | None, typer.Option(min=1, help="So many pages at most, spread over the split.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json and report.html.")] = None,
    device: Device = "auto",
) -> None:
    """Measure a detector: COCO's average precision, class by class; look-alikes; seconds a page."""
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
    for row in evaluation.scores.table():
        typer.echo(f"{row[0]:<32}{row[1]:>9}{row[2]:>8}{row[3]:>8}{row[4]:>8}")
    for confusion in evaluation.confusions:
        typer.echo(f"{confusion.family}: {confusion.accuracy:.1%} of those found have the right class")
    means = evaluation.scores.means()
    for kind, ending in (("classes", ""), ("objects", " by instance")):
        three = ", ".join(f"{name} {100 * means[name + ending]:.1f}" for name in ("mAP", "AP50", "AP25"))
        typer.echo(f"mean over {kind}: {three}")
    counts = f"{pluralize(evaluation.pages, 'pages')}, {pluralize(evaluation.objects, 'objects')}"
    typer.echo(f"{counts}, list {evaluation.class_list}, {evaluation.seconds:.2f} s a page")


@detect.command()
@resumable()
def train(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA", help="Folders that `entourage engrave` made; muscima, or its folder or archive."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for detect.safetensors, checkpoints and summary.json.")],
    classes: Annotated[
        Literal["detector", "v1", "muscima"], typer.Option(help="Which symbols are told apart.")
    ] = "detector",
    start: Annotated[
        Path | None, typer.Option("--from", help="A detector to begin with: default, muscima, or a file.")
    ] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"] | None,
        typer.Option(help="Maps, network and losses of a new detector; default if left out."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Minutes of training, in place of steps.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Windows of pages a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=1e-8, help="The highest that there is.")] = None,
    margin: Annotated[int, typer.Option(min=0, help="Crops of rare symbols on top of every window.")] = 0,
    no_degradation: Annotated[
        bool, typer.Option("--no-degradation", help="Leave out blur, noise, light and paper.")
    ] = False,
    staged: Annotated[bool, typer.Option("--staged", help="The stages of the thesis, one after the other.")] = False,
    validation: Annotated[int, typer.Option(min=0, help="Pages to validate with.")] = 8,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Train a detector on annotated pages; a command that was stopped goes on when it is repeated."""
    from entourage.detect.training.task import Recipe
    from entourage.detect.training.train import TrainConfig, train_detector
    from entourage.report.page import pluralize

    if start is not None and preset is not None:
        raise ValueError("--from and --preset are given; expected one: a detector to begin with has its own network")
    if steps is not None and minutes is not None:
        raise ValueError("--steps and --minutes are given; expected one of them")
    default = Recipe.for_handwriting() if classes == "muscima" else Recipe()
    recipe = replace(
        default,
        steps=steps or default.steps,
        batch=batch or default.batch,
        learning_rate=learning_rate or default.learning_rate,
        margin=margin,
        degradation=None if no_degradation else default.degradation,
        validation=validation,
        seed=seed,
    )
    config = TrainConfig(
        data,
        out,
        classes=classes,
        start=start,
        preset=preset or "default",
        recipe=recipe,
        minutes=minutes,
        staged=staged,
        device=device,
        log=lambda line: typer.echo(line, err=True),
    )
    result = train_detector(config)
    scores = f", mAP {result['map']:.1%}, AP50 {result['ap50']:.1%}" if "map" in result else ""
    typer.echo(
        f"{pluralize(result['pages'], 'pages')}, {pluralize(result['steps'], 'steps')}{scores}: {result['model']}"
    )

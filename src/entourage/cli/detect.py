"""`entourage detect`: every symbol of a page of music, with its place and class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

detect = typer.Typer(help="Find every symbol on pages of music.", no_args_is_help=True)


@detect.callback()
def _verb() -> None:
    """Find every symbol on pages of music."""


@detect.command()
def train(
    data: Annotated[
        list[str], typer.Argument(help="Folders that `entourage engrave` made; muscima, or its folder or archive.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for detect.safetensors, checkpoints and summary.json.")],
    classes: Annotated[
        Literal["detector", "v1", "muscima"], typer.Option(help="Which symbols are told apart.")
    ] = "detector",
    start: Annotated[Path | None, typer.Option("--from", help="A detector to begin with.")] = None,
    preset: Annotated[
        Literal["default", "thesis", "original"], typer.Option(help="Maps, network and losses.")
    ] = "default",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Minutes of training, in place of steps.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Windows of pages a step.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.0, help="The highest learning rate.")] = None,
    margin: Annotated[int, typer.Option(min=0, help="Crops of rare symbols on top of every window.")] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Leave out blur, noise, light and paper.")] = False,
    staged: Annotated[bool, typer.Option("--staged", help="The stages of the thesis, one after the other.")] = False,
    validation: Annotated[int, typer.Option(min=0, help="Pages to validate with.")] = 12,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train a detector on annotated pages; a command that was stopped goes on when it is repeated."""
    from entourage.detect.recipe import Recipe
    from entourage.detect.teach import TrainJob, train_detector

    usual = Recipe.for_handwriting() if classes == "muscima" else Recipe()
    recipe = replace(
        usual,
        steps=steps or usual.steps,
        batch=batch or usual.batch,
        learning_rate=rate or usual.learning_rate,
        margin=margin,
        view=None if plain else usual.view,
        validation=validation,
        seed=seed,
    )
    job = TrainJob(
        data,
        out,
        classes=classes,
        start=start,
        preset=preset,
        recipe=recipe,
        minutes=minutes,
        staged=staged,
        device=device,
        say=lambda line: typer.echo(line, err=True),
    )
    result = train_detector(job)
    scores = f", mAP {result['map']:.1%}, AP50 {result['ap50']:.1%}" if "map" in result else ""
    typer.echo(f"{result['pages']} pages, {result['steps']} steps{scores}: {result['model']}")

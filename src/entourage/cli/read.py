"""`entourage read`: read pages of printed music into files of music."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, note, report, report_skipped, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types


def read(
    pages: Annotated[
        list[Path],
        typer.Argument(metavar="PAGES", help="Images (PNG, JPEG, TIFF, ...), PDF files, or folders of them."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the scores and report.html.")] = Path("scores"),
    join: Annotated[bool, typer.Option("--join", help="Make one score of all pages, in the given order.")] = False,
    extra_format: Annotated[
        Literal["mei"] | None, typer.Option("--format", help="A further format.", show_default="MusicXML, MIDI, JSON")
    ] = None,
    transpose: Annotated[
        str | None,
        typer.Option(help="Semitones such as -3, or an interval such as M2 or -P5.", show_default="as written"),
    ] = None,
    tempo: Annotated[float, typer.Option(min=10, max=1000, help="Quarter notes per minute of MIDI files.")] = 100.0,
    model: Annotated[
        str | None, typer.Option(help="default, or a file from `entourage detect train`.", show_default="default")
    ] = None,
    text: Annotated[
        bool | None,
        typer.Option(help="Read titles, words and lyrics.", show_default="if the extra [text] is installed"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes.", show_default="one per core, at most 4; 1 on a GPU")
    ] = None,
    config: Annotated[ConfigFile | None, config_option("entourage.read.pipeline:ReadConfig")] = None,
    device: Device = "auto",
) -> None:
    """Read pages of printed music; write MusicXML, MIDI and JSON with the place of each note on the page."""
    from entourage.read.pipeline import ReadConfig, run_reading
    from entourage.report.page import pluralize

    summary = run_reading(
        ReadConfig(
            pages,
            out,
            join=join,
            extra_format=extra_format,
            transpose=transpose,
            tempo=tempo,
            model=model,
            text=text,
            workers=workers,
            device=device,
            **config_values(config, field_types(ReadConfig)),
        )
    )
    report(summary)
    counts = f"{pluralize(summary['pages'], 'pages')}, {pluralize(summary['notes'], 'notes')}"
    typer.echo(f"{counts}: {out / 'report.html'}")
    for score in summary["scores"]:
        for page in score["pages"]:
            if page["message"]:
                note(f"{page['source']}: {page['message']}")
    if summary["marked"]:
        marked = f"{summary['marked']} of {pluralize(summary['measures'], 'measures')} do not add up"
        note(f"{marked}; report.html marks them")
    report_skipped(skipped_items(summary))

"""`entourage serve`: open a folder that another command wrote, in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

StrategyName = Literal["random", "least_confident", "uncertain_region", "coverage", "mixed", "uncertain_coverage"]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any.", show_default="8765 or the next free")
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]
Strategy = Annotated[
    StrategyName | None, typer.Option(help="Selection of the items to label next.", show_default="coverage")
]
AllowHost = Annotated[
    list[str] | None, typer.Option("--allow-host", help="Another host name of the page, behind a proxy.")
]


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a command.")],
    source: Annotated[
        Path | None,
        typer.Option(
            help="Images, scans or features that the page may show.", show_default="as recorded, if confirmed"
        ),
    ] = None,
    port: Port = None,
    browser: Browser = True,
    strategy: Strategy = None,
    allow_host: AllowHost = None,
) -> None:
    """Open a labelling, a reading, an index, a clustering, or the report of another command, in the browser."""
    from entourage.serve.server import ServeOptions, serve_directory

    def confirm(recorded: Path) -> bool:
        return sys.stdin.isatty() and typer.confirm(f"Show the items of {recorded}?", default=True)

    options = ServeOptions(port, browser, allow_host or (), typer.echo)
    serve_directory(folder, options, source=source, confirm=confirm, strategy=strategy)

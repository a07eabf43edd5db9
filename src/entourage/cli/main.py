"""`entourage`: the verbs, and how errors and warnings reach the user."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from entourage import __version__
from entourage.cli.cluster import cluster
from entourage.cli.common import STOPPED, StoppedError
from entourage.cli.detect import detect
from entourage.cli.embed import embed
from entourage.cli.engrave import app as engrave
from entourage.cli.label import app as label_app
from entourage.demo import demo

# click's, which newer versions of typer have as their own
_UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])

app = typer.Typer(
    help="Neural networks that use context.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(label_app, name="label", help="Label a whole data set from a handful of labels, and train a classifier.")
app.add_typer(embed, name="embed")
app.add_typer(cluster, name="cluster")
app.add_typer(engrave, name="engrave")
app.add_typer(detect, name="detect")
app.command()(demo)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def entourage(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Neural networks that use context."""


def _end_stopped(told: str) -> NoReturn:
    typer.echo(f"entourage: {told}", err=True)
    sys.exit(STOPPED)


def _end_misused(error: Any) -> NoReturn:
    """One line for what is no command, no option, or no value of one; a command without any words shows its help."""
    told = " ".join(error.format_message().split())
    command = "entourage" if error.ctx is None else error.ctx.command_path
    if told.startswith("Usage:"):
        error.show()
    elif told:  # else the help has been shown
        line = f"{told[0].lower()}{told[1:].rstrip('.')} (`{command} --help` tells what is expected)"
        typer.echo(f"entourage: {line}", err=True)
    sys.exit(error.exit_code)


def main() -> None:
    """Runs the command line. Bad input is one line and exit code 2; ENTOURAGE_DEBUG=1 shows where it came from.

    What is stopped is one line, too, and exit code 130.
    """
    # Of several processes the main one speaks. (Not by `is_main_process`, whose room takes a second to import.)
    if os.environ.get("RANK", "0") != "0":
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files need not be UTF-8: they go out as they are
    warnings.showwarning = lambda message, *_: typer.echo(f"entourage: note: {message}", err=True)
    try:
        code = app(standalone_mode=False)
    except StoppedError:
        _end_stopped("stopped; the same command goes on from here")
    except KeyboardInterrupt:
        _end_stopped("stopped")
    except _UsageError as error:
        _end_misused(error)
    except (ValueError, OSError) as error:
        if os.environ.get("ENTOURAGE_DEBUG"):
            raise
        typer.echo(f"entourage: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
    if code == STOPPED:  # typer makes this of being stopped
        _end_stopped("stopped")
    sys.exit(code if isinstance(code, int) else 0)

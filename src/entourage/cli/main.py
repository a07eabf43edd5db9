"""The `entourage` command: its subcommands, error messages and exit codes."""

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
from entourage.cli.common import STOPPED_EXIT_CODE, StoppedError
from entourage.cli.detect import detect
from entourage.cli.embed import embed
from entourage.cli.engrave import app as engrave
from entourage.cli.label import app as label_app
from entourage.cli.read import read
from entourage.cli.serve import serve
from entourage.demo import demo

# click's UsageError: typer exports only its subclass, and newer versions include their own copy of click
_UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])

app = typer.Typer(
    help="Neural networks that use context.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(label_app, name="label", help="Label a data set from a few labels, and train a classifier.")
app.add_typer(embed, name="embed")
app.add_typer(cluster, name="cluster")
app.add_typer(engrave, name="engrave")
app.add_typer(detect, name="detect")
app.command()(read)
app.command()(serve)
app.command()(demo)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def entourage(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural networks that use context."""


def _exit_stopped(message: str) -> NoReturn:
    typer.echo(f"entourage: {message}", err=True)
    sys.exit(STOPPED_EXIT_CODE)


def _exit_usage(error: Any) -> NoReturn:
    """Print a usage error as one line and exit; a command without arguments shows its help instead."""
    message = " ".join(error.format_message().split())
    command = "entourage" if error.ctx is None else error.ctx.command_path
    if message.startswith("Usage:"):
        error.show()
    elif message:  # otherwise typer has printed the help
        line = f"{message[0].lower()}{message[1:].rstrip('.')} (see `{command} --help`)"
        typer.echo(f"entourage: {line}", err=True)
    sys.exit(error.exit_code)


def main() -> None:
    """Run the command line and exit the process.

    Invalid input is reported in one line with exit code 2; ENTOURAGE_DEBUG=1 shows the traceback. An interrupt is
    reported in one line with exit code 130.
    """
    # Only the main process prints. `is_main_process` would answer the same, but takes a second to import.
    if os.environ.get("RANK", "0") != "0":
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # file names that are not UTF-8 are printed byte for byte
    warnings.showwarning = lambda message, *_: typer.echo(f"entourage: note: {message}", err=True)
    try:
        code = app(standalone_mode=False)
    except StoppedError:
        _exit_stopped("stopped; repeat the command to resume")
    except KeyboardInterrupt:
        _exit_stopped("stopped")
    except _UsageError as error:
        _exit_usage(error)
    except (ValueError, OSError) as error:
        if os.environ.get("ENTOURAGE_DEBUG"):
            raise
        typer.echo(f"entourage: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
    if code == STOPPED_EXIT_CODE:  # typer returns it after an interrupt
        _exit_stopped("stopped")
    sys.exit(code if isinstance(code, int) else 0)

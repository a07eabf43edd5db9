"""What a command prints: lines, one JSON object with `--json`, less with `--quiet`, more with `--verbose`.

Every command has these three options, because the group of all commands adds them. A command prints its lines with
`typer.echo`, hands the values of `--json` to `report`, and its notes and skipped items to `note` and `report_skipped`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer

from entourage.extras import MissingExtraError
from entourage.io import progress
from entourage.io.files import describe_os_error

SKIPPED_EXIT_CODE = 1  # the command succeeded, but some inputs could not be read
WRONG_INPUT_EXIT_CODE = 2
STOPPED_EXIT_CODE = 130  # 128 plus the number of SIGINT, as in a shell

# click's UsageError: typer exports only its subclass, and newer versions include their own copy of click
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])


class StoppedError(Exception):
    """Raised by a command that was interrupted and resumes when it is repeated."""


@dataclass
class Output:
    """The output of the command that runs.

    Attributes:
        as_json: print one object instead of lines.
        quiet: print errors and skipped items only.
        verbose: also print times, and tracebacks of errors.
        name: the words of the command.
        stdout: standard output of the process, while `sys.stdout` collects or drops the lines.
        lines: lines printed so far, while they are collected for `--json`.
        result: values of the object that `--json` prints.
        reported: whether the command has called `report`.
        skipped: name of each skipped item, and the reason.
    """

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    name: str = ""
    stdout: TextIO | None = None
    lines: io.StringIO = field(default_factory=io.StringIO)
    result: dict[str, Any] = field(default_factory=dict)
    reported: bool = False
    skipped: list[dict[str, str]] = field(default_factory=list)


_current = Output()


def report(values: Any) -> None:
    """Add values to the object that `--json` prints.

    Args:
        values: a mapping with strings as keys, or a dataclass instance; arrays and paths are converted.
    """
    fields = asdict(values) if is_dataclass(values) and not isinstance(values, type) else dict(values)
    _current.result.update(fields)
    _current.reported = True


def note(message: str) -> None:
    """Print a note for the user in one line on standard error."""
    if not _current.quiet:
        typer.echo(f"entourage: note: {message}", err=True)


def report_skipped(skipped: Iterable[tuple[str | Path, str]]) -> None:
    """Print one line for each skipped input, and exit with code 1 if there is any.

    Args:
        skipped: names of the inputs, and why each was skipped.

    Raises:
        typer.Exit: something was skipped.
    """
    items = [(str(item), reason) for item, reason in skipped]
    for item, reason in items:
        _current.skipped.append({"item": item, "reason": reason})
        typer.echo(f"entourage: skipped {item}: {reason}", err=True)
    if items:
        raise typer.Exit(SKIPPED_EXIT_CODE)


def data_stream() -> TextIO:
    """Return the stream for results that are data, such as a table, which `--quiet` does not drop."""
    return sys.stdout if _current.as_json or _current.stdout is None else _current.stdout


@contextlib.contextmanager
def command_output() -> Iterator[None]:
    """Apply the options of the output to the command that runs in the block."""
    global _current
    _current = output = Output(stdout=sys.stdout)
    start = time.perf_counter()
    error: BaseException | None = None
    with _restored_streams():
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            assert output.stdout is not None
            if output.as_json:
                output.stdout.write(json.dumps(_object(output, error), indent=2) + "\n")
                output.stdout.flush()
            elif output.verbose:
                typer.echo(f"entourage: {output.name}: {time.perf_counter() - start:.1f} s", err=True)
            _current = Output()


@contextlib.contextmanager
def _restored_streams() -> Iterator[None]:
    stdout = sys.stdout
    mode = (progress.quiet, progress.verbose)
    try:
        yield
    finally:
        sys.stdout = stdout
        progress.quiet, progress.verbose = mode


def _object(output: Output, error: BaseException | None) -> dict[str, Any]:
    """Return the object of `--json`: the result of the command or, if it has none, its lines; or the error."""
    values: dict[str, Any] = output.result if output.reported else {"lines": output.lines.getvalue().splitlines()}
    message, code = describe_error(error) if error is not None else ("", 0)
    if message:
        values = {"error": message, "exit_code": code}
    elif output.skipped and "skipped" not in values:
        values = {**values, "skipped": output.skipped}
    return cast(dict[str, Any], _plain(values))


def _plain(value: Any) -> Any:
    """Convert values to those of JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy and torch
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def describe_error(error: BaseException) -> tuple[str, int]:
    """Return the line that describes how a command ended, without "entourage: ", and its exit code.

    Raises:
        BaseException: the error itself, if it is not one of invalid input or an interrupt.
    """
    if isinstance(error, StoppedError):
        return "stopped; repeat the command to resume", STOPPED_EXIT_CODE
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "stopped", STOPPED_EXIT_CODE
    if isinstance(error, typer.Exit):
        return "", error.exit_code
    if isinstance(error, UsageError):
        return _describe_usage(error), WRONG_INPUT_EXIT_CODE
    if isinstance(error, OSError):
        return describe_os_error(error), WRONG_INPUT_EXIT_CODE
    if isinstance(error, ValueError | MissingExtraError):
        return " ".join(str(error).split()), WRONG_INPUT_EXIT_CODE
    raise error


RENAMED = {
    "label": {
        "--neighbours": "--n-neighbors",
        "--mirror": "--flip",
        "--learn": "train.method in a file of --config",
        "--layers": "train.trainable_layers in a file of --config",
    },
    "cluster run": {"--clusters": "--n-clusters", "--most": "--max-clusters"},
    "embed": {"--members": "--ensemble", "--part": "--split", "--count": "--top-k"},
    "detect": {"--list": "--class-list"},
    "engrave": {"--every-font": "--all-fonts", "--share": "--max-frequency", "--most": "--per-class"},
}
"""Names that options had before version 0.1.0 was complete, by the first words of the commands."""


def _describe_usage(error: Any) -> str:
    """Return a usage error as one line; an empty one if the help is shown instead."""
    message = " ".join(error.format_message().split())
    if error.ctx is not None and (renamed := _renamed(error, _words(error.ctx))):
        return f"{error.option_name}: no longer exists; expected {renamed}"
    command = "entourage" if error.ctx is None else error.ctx.command_path
    if not message or message.startswith("Usage:"):
        return ""
    return f"{message[0].lower()}{message[1:].rstrip('.')} (see `{command} --help`)"


def _renamed(error: Any, words: str) -> str | None:
    """Return the present name of an option that does not exist, if it was renamed."""
    option = getattr(error, "option_name", None)
    names = [renamed for command, renamed in RENAMED.items() if f"{words} ".startswith(f"{command} ")]
    return next((renamed[option] for renamed in names if option in renamed), None)


def print_error(error: BaseException) -> int:
    """Print the line of `describe_error`, and with `--verbose` the traceback; return the exit code."""
    message, code = describe_error(error)
    if isinstance(error, UsageError) and not message and cast(Any, error).format_message():
        cast(Any, error).show()  # a command without arguments shows its help
    if message:
        if code == WRONG_INPUT_EXIT_CODE and (os.environ.get("ENTOURAGE_DEBUG") or "--verbose" in sys.argv):
            traceback.print_exception(error)
        typer.echo(f"entourage: {message}", err=True)
    return code


def _set_json(ctx: typer.Context, requested: bool) -> None:
    if requested:
        _current.name = _words(ctx)
        _current.as_json = True
        progress.quiet = True
        sys.stdout = _current.lines


def _set_quiet(ctx: typer.Context, requested: bool) -> None:
    if requested:
        _current.name = _words(ctx)
        _current.quiet = True
        progress.quiet = True
        if not _current.as_json:
            sys.stdout = io.StringIO()


def _set_verbose(ctx: typer.Context, requested: bool) -> None:
    if requested:
        _current.name = _words(ctx)
        _current.verbose = True
        progress.verbose = True


def _words(ctx: typer.Context) -> str:
    """Return the words of a command without the name of the program."""
    words = []
    context: Any = ctx
    while context is not None and context.parent is not None:
        words.append(context.info_name)
        context = context.parent
    return " ".join(reversed(words))


def _option(name: str, callback: Any, text: str) -> Any:
    """Return an option that acts while the command line is read, and is not an argument of the command."""
    arguments: dict[str, Any] = {"expose_value": False, "is_eager": True, "rich_help_panel": "Output"}
    return typer.Option(name, callback=callback, help=text, **arguments)


def _declare(
    as_json: Annotated[bool, _option("--json", _set_json, "Print the result as one JSON object.")] = False,
    quiet: Annotated[bool, _option("--quiet", _set_quiet, "Print errors and skipped items only.")] = False,
    verbose: Annotated[
        bool, _option("--verbose", _set_verbose, "Also print the time of each phase, and tracebacks of errors.")
    ] = False,
) -> None:
    """Declare the options of the output as those of a command."""


@cache
def output_options() -> tuple[Any, ...]:
    """Return the parameters `--json`, `--quiet` and `--verbose`, which all commands share."""
    app = typer.Typer(add_completion=False)
    app.command()(_declare)
    parameters: list[Any] = typer.main.get_command(app).params
    return tuple(parameter for parameter in parameters if parameter.name in ("as_json", "quiet", "verbose"))

"""The `entourage` command: its subcommands, error messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from entourage import __version__
from entourage.cli.cluster import cluster
from entourage.cli.detect import detect
from entourage.cli.doctor import doctor
from entourage.cli.embed import embed
from entourage.cli.engrave import app as engrave
from entourage.cli.label import app as label_app
from entourage.cli.output import command_output, note, output_options, print_error
from entourage.cli.read import read
from entourage.cli.serve import serve
from entourage.demo import demo
from entourage.extras import extra_imports

EXAMPLES = {
    "label": "entourage label photos/ --labels known.csv --out labelled",
    "label predict": "entourage label predict labelled/classifier.safetensors new/",
    "embed train": "entourage embed train birds/ --out run",
    "embed eval": "entourage embed eval run more-birds/",
    "embed index": "entourage embed index photos/ --out index",
    "embed search": "entourage embed search index this-one.jpg",
    "embed duplicates": "entourage embed duplicates index",
    "embed export": "entourage embed export index --out vectors.npy",
    "cluster run": "entourage cluster run table.csv --out groups",
    "cluster train": "entourage cluster train photos/ --out mine.safetensors --minutes 20",
    "engrave run": "entourage engrave run songs/ --out pages",
    "engrave stats": "entourage engrave stats pages",
    "engrave show": "entourage engrave show pages/images/song-1.png",
    "engrave align": "entourage engrave align scan.jpg pages/images/song-1.png",
    "engrave crops": "entourage engrave crops pages --out crops.parquet",
    "detect run": "entourage detect run scans/ song.pdf --out found",
    "detect eval": "entourage detect eval pages --split test",
    "detect train": "entourage detect train pages --out run --minutes 60",
    "read": "entourage read scans/ song.pdf --out scores",
    "serve": "entourage serve labelled",
    "demo": "entourage demo --out demo",
    "doctor": "entourage doctor",
}
"""An example of each command by its words, in the order in which `entourage` lists them."""


class _Commands(TyperGroup):
    """The group of all commands: it adds the options of the output to each of them, and applies these."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for words, command in leaf_commands(self):
            declared = {name for parameter in command.params for name in parameter.opts}
            command.params += [option for option in output_options() if not declared.intersection(option.opts)]
            command.epilog = command.epilog or (f"Example: {EXAMPLES[words]}" if words in EXAMPLES else None)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of `EXAMPLES`."""
        order = [words.partition(" ")[0] for words in EXAMPLES]
        return sorted(super().list_commands(ctx), key=order.index)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; see `command_output`."""
        with command_output(), extra_imports():
            return super().invoke(ctx)


def leaf_commands(group: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all commands of a group and of its subgroups, each with the words that call it, such as "detect run"."""
    for name, command in group.commands.items():
        path = f"{words} {name}".strip()
        if hasattr(command, "commands"):
            yield from leaf_commands(command, path)
        else:
            yield path.removesuffix(" source"), command


app = typer.Typer(
    cls=_Commands,
    help="Neural networks that use context.",
    invoke_without_command=True,
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
app.command()(doctor)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def entourage(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural networks that use context."""
    if ctx.invoked_subcommand is None:
        typer.echo(overview(ctx.command))


def overview(group: Any) -> str:
    """Return every command with one line about it and one example."""
    lines = [f"entourage {__version__}: neural networks that use context.", ""]
    helps = {words: command.get_short_help_str(120) for words, command in leaf_commands(group)}
    for words, example in EXAMPLES.items():
        lines += [f"  {words:<16} {helps[words]}", f"  {'':<16} $ {example}", ""]
    lines += [
        "Each command has --help, --json, --quiet and --verbose; `entourage --install-completion` completes words.",
        "Exit codes: 0 done, 1 some inputs were skipped, 2 wrong input, 130 stopped.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line and exit the process.

    Invalid input is reported in one line with exit code 2; `--verbose` and ENTOURAGE_DEBUG=1 print the traceback, too.
    An interrupt is reported in one line with exit code 130.
    """
    # Only the main process prints. `is_main_process` would answer the same, but takes a second to import.
    if os.environ.get("RANK", "0") != "0":
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # file names that are not UTF-8 are printed byte for byte
    warnings.showwarning = lambda message, *_: note(str(message))
    try:
        code = app(standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(print_error(error))
    if code == 130:  # typer returns it after an interrupt
        sys.exit(print_error(KeyboardInterrupt()))
    sys.exit(code if isinstance(code, int) else 0)

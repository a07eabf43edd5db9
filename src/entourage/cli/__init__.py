"""The command line: one subcommand per package, and the demo."""

from entourage.cli.main import main

__all__ = ["main"]

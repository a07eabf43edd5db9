"""The command line: one command a verb, and the demo."""

from entourage.cli.main import main

__all__ = ["main"]

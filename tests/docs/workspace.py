"""Inputs of the examples of the docs, and a runner of their commands in this process."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def commands(text: str) -> Iterator[str]:
    """Return the commands of a block of shell code; one may have several lines within quotes."""
    pending = ""
    for line in text.splitlines():
        pending += line + "\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:  # an open quote
            continue
        if words:
            yield pending.strip()
        pending = ""
    assert not pending.strip()


def write_photos(folder: Path, classes: str = "abcd", count: int = 4, side: int = 64) -> list[Path]:
    """Write noise in a colour for each class, as CLASS/NUMBER.png."""
    paths = []
    for code, name in enumerate(classes):
        for number in range(count):
            rng = np.random.default_rng([code, number])
            pixels = rng.integers(0, 100, (side, side, 3)) + np.array([code % 2, code // 2 % 2, code // 4]) * 150
            paths.append(folder / name / f"{number}.png")
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])
    return paths


def write_labels(path: Path, items: dict[str, str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("item", "label"), *items.items()])


def run_command(command: str, folder: Path) -> None:
    """Run a command of the docs in a folder, which is the working directory; or check it, if it installs something."""
    words = shlex.split(command, comments=True)
    if words[0] == "entourage":
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{command}: {result.output}"
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), command
    elif words[0] == "pip":
        check_installation(words)
    elif words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks.", "experiments.")):
        assert find_spec(words[2]) is not None, command
    else:
        assert words[0] in ("cp", "echo", "python"), (
            f"{command}: no rule to run it; expected one in {Path(__file__).name}"
        )
        shell = ["bash", "-c", f'python() {{ "{sys.executable}" "$@"; }}\n{command}']
        subprocess.run(shell, cwd=folder, check=True, capture_output=True, timeout=300)


def check_installation(words: list[str]) -> None:
    """Check the files and extras that `pip install` names."""
    assert words[1] == "install"
    for word in words[2:]:
        extras = re.fullmatch(r"(?:entourage|\.)\[([\w,]+)\]", word)
        if extras:
            assert set(extras[1].split(",")) <= {*EXTRAS, "all"}, word
        elif not word.startswith("-") and word != "entourage":
            assert (ROOT / word).exists(), word

"""Check that the figures quoted in README.md and docs/ are in results/; the exit code is 1 if one is not.

    python -m experiments.check_figures

A figure is a percentage, a number with a decimal point, or a factor ("4 times as long"). All figures of a paragraph, a
list item or a table have to be in one file of results/ whose name begins with the command of the page (of any command
in the README and the other pages), rounded to the digits that are quoted. Two comments, in the block or in the
paragraph before it, state otherwise:

    <!-- results: detect_speed.txt detect_speed.cuda.txt -->    the figures are in these files
    <!-- no results -->                                         options, limits or definitions, not measurements

Not checked are code, numbers of versions, differences in points, and clauses and rows that quote the thesis or others.
`docs/results.md` is generated from results/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from experiments.command import run_command

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "docs/results.md"
SCALES = (1, 100, 0.001)  # fractions are quoted as percentages, milliseconds as seconds
COMMANDS = ("label", "embed", "cluster", "engrave", "detect", "read", "serve")

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = rf"{_WHOLE}(?:\.\d+)?"
_UNIT = rf"(?: (?:and|to|or) {_NUMBER})? ?(?:%|times)"  # also of the first of two numbers
_FIGURE = re.compile(rf"(?<![\w.,-])({_NUMBER}(?={_UNIT})|{_WHOLE}\.\d+)(?![\w.]*\d)")
_POINTS = re.compile(rf"(?:{_NUMBER}(?: (?:to|and|or) |, ))*(?:{_NUMBER}) (?:percentage )?points")
_CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)
_VERSION = re.compile(r"\d+\.\d+\.\d+|(?:BY-NC-SA|-|Python|MusicXML|torch|version) \d+\.\d+(?: to \d+\.\d+)?")
_QUOTED = re.compile(r"thesis|appendix|published|chapter|theirs", re.IGNORECASE)
_MARKER = re.compile(r"<!-- (?:results: ([^>]+?)|(no results)) -->")


@dataclass(frozen=True)
class Problem:
    """A block whose figures are not in results/."""

    page: str
    line: int
    figures: tuple[str, ...]
    files: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {', '.join(self.figures)} not in {self.files}; expected a figure of results/"


def check(root: Path = ROOT) -> list[Problem]:
    """Return the blocks of README.md and docs/ with figures that are not in results/.

    Args:
        root: the repository.

    Raises:
        ValueError: a comment names a file that results/ lacks.
    """
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    problems = []
    for path in pages:
        name = path.relative_to(root).as_posix()
        if name != GENERATED:
            problems += list(_check_page(name, path.read_text(encoding="utf-8"), root / "results"))
    return problems


def _check_page(name: str, text: str, results: Path) -> Iterator[Problem]:
    stem = Path(name).stem
    default = sorted(path for path in results.glob("*.*") if path.suffix in (".md", ".txt"))
    if stem in COMMANDS:
        default = [path for path in default if path.name.startswith(f"{stem}_")]
    for line, block in blocks(text):
        found, marker = figures(block), _MARKER.search(block)
        if not found or (marker and marker[2]):
            continue
        if marker:
            files = [results / file for file in marker[1].split()]
            for file in files:
                if not file.is_file():
                    raise ValueError(f"{name}:{line}: {file.name} is missing in results/; expected one of its files")
            missing = [figure for figure in found if not any(contains(file, figure) for file in files)]
            searched = " or ".join(file.name for file in files)
        else:
            by_file = [[figure for figure in found if not contains(file, figure)] for file in default]
            missing = min(by_file, key=len, default=found)
            searched = f"any one file of results/{stem}_*" if stem in COMMANDS else "any one file of results/"
        if missing:
            yield Problem(name, line, tuple(dict.fromkeys(missing)), searched)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Return paragraphs, list items and tables with the numbers of their first lines; a comment belongs to the next."""
    position, pending = 1, ""
    for part in re.split(r"(\n\s*\n|\n(?=- |\d+\. ))", re.sub(r"```.*?```", _blank, text, flags=re.DOTALL)):
        if part.strip():
            if _MARKER.fullmatch(part.strip()):
                pending = part + "\n"
            else:
                yield position, pending + part
                pending = ""
        position += part.count("\n")


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def figures(block: str) -> list[str]:
    """Return the figures of a block as they are written, without those of the thesis and of others."""
    if block.lstrip().startswith(("#", "!")):
        return []
    if "|---" in block.replace(" ", ""):
        rows = [
            row for row in block.splitlines() if not _QUOTED.search(row.split("|")[1] if row.count("|") > 1 else "")
        ]
        clauses = [cell for row in rows for cell in row.split("|")]
    else:
        clauses = re.split(r"(?<=[;:])\s|(?<=\.)\s(?=[A-Z*`])", " ".join(block.split()))
    found = []
    for clause in clauses:
        if not _QUOTED.search(clause):
            plain = _POINTS.sub(" ", _VERSION.sub(" ", _CODE.sub(" ", clause)))
            found += _FIGURE.findall(plain)
    return found


def contains(path: Path, figure: str) -> bool:
    """Return whether a file has a number that rounds to a figure, after a change of units of `SCALES`."""
    value = float(figure.replace(",", ""))
    half = 0.5 * 10.0 ** -len(figure.partition(".")[2]) + 1e-9
    return any(abs(scale * number - value) <= half for number in numbers(path) for scale in SCALES)


@cache
def numbers(path: Path) -> frozenset[float]:
    """Return the numbers in a file."""
    text = path.read_text(encoding="utf-8")
    return frozenset(float(number.replace(",", "")) for number in re.findall(rf"(?<![\w.])(?:{_NUMBER})", text))


def main() -> int:
    """Print a line for each block with figures that are not in results/."""
    problems = check()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    run_command(lambda: sys.exit(main()))

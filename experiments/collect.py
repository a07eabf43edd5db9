"""Writes docs/results.md from results/: no figure in it is typed by hand.

python -m experiments.collect
"""

from __future__ import annotations

import ast
from pathlib import Path

from entourage.io.files import write_text
from experiments.command import run_command

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Collects what the benchmarks printed and what the experiments wrote."""
    parts = [path.read_text(encoding="utf-8").strip() for path in sorted((ROOT / "results").glob("*.md"))]
    parts += [_printed(path) for path in sorted((ROOT / "results").glob("*.txt"))]
    titles = [part.splitlines()[0].removeprefix("## ") for part in parts]
    lead = "Made by `python -m experiments.collect` from `results/`; every figure was printed by a command."
    contents = "\n".join(f"- [{title}](#{anchor(title)})" for title in titles)
    write_text(ROOT / "docs" / "results.md", "\n\n".join(["# Results", lead, contents, *parts]) + "\n")


def anchor(title: str) -> str:
    """What a heading is called in links to it, as GitHub has it."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _printed(path: Path) -> str:
    """The output of a benchmark under the first line of its documentation."""
    # label_speed.cuda.txt and label_speed.isotropic.txt are label_speed too.
    name, _, variant = path.stem.partition(".")
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    option = f" --{variant}" if variant else ""
    if variant == "cuda":  # what takes no device uses a GPU where there is one
        option = " --device cuda" if '"--device"' in source else ""
    title = (ast.get_docstring(ast.parse(source)) or name).splitlines()[0].rstrip(".")
    if variant:
        title += f" ({'on a GPU' if variant == 'cuda' else variant})"
    command = f"python -m benchmarks.{name}{option}"
    output = path.read_text(encoding="utf-8").strip()
    return f"## {title}\n\n`{command}`\n\n```text\n{output}\n```"


if __name__ == "__main__":
    run_command(main)

"""Writes docs/results.md from results/: no figure in it is typed by hand.

python -m experiments.collect
"""

from __future__ import annotations

import ast
from pathlib import Path

from entourage.data import write_text
from experiments.command import run_command

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Collects what the benchmarks printed and what the experiments wrote."""
    parts = [
        "# Results\n\nMade by `python -m experiments.collect` from `results/`; every figure was printed by a command."
    ]
    parts += [_printed(path) for path in sorted((ROOT / "results").glob("*.txt"))]
    parts += [path.read_text(encoding="utf-8").strip() for path in sorted((ROOT / "results").glob("*.md"))]
    write_text(ROOT / "docs" / "results.md", "\n\n".join(parts) + "\n")


def _printed(path: Path) -> str:
    """The output of a benchmark under the first line of its documentation."""
    # label_speed.cuda.txt and label_speed.isotropic.txt are label_speed too.
    name, _, variant = path.stem.partition(".")
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    option = f" --{variant}" if variant else ""
    if variant == "cuda":  # what takes no device uses a GPU where there is one
        option = " --device cuda" if '"--device"' in source else ""
    title = (ast.get_docstring(ast.parse(source)) or name).splitlines()[0]
    command = f"python -m benchmarks.{name}{option}"
    output = path.read_text(encoding="utf-8").strip()
    return f"## {title}\n\n`{command}`\n\n```text\n{output}\n```"


if __name__ == "__main__":
    run_command(main)

"""Draw docs/images/cluster.svg: the clusters of 2D sets of the demo, by the shipped network.

python -m experiments.cluster_picture
"""

from __future__ import annotations

from pathlib import Path

from entourage.demo.learning import cluster_section as demo_section
from entourage.io.files import write_text
from experiments.command import run_command

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "cluster.svg"


def main() -> None:
    """Draw and save the figure."""
    section = demo_section()
    write_text(IMAGE, f'<?xml version="1.0" encoding="utf-8"?>\n{section.wide[0].figure}\n')
    for row in section.wide[1].table:
        print("  ".join(f"{cell:26}" for cell in row))


if __name__ == "__main__":
    run_command(main)

"""Options that verbs share, so that they are called and described alike."""

from __future__ import annotations

from typing import Annotated

import typer

MOST_SEED = 2**31  # what every generator that is seeded takes

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of everything that is drawn.")]

"""`entourage demo`: every verb shows in one report what it does, from nothing but the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(out: Annotated[Path, typer.Option(help="Folder for report.html.")] = Path("demo")) -> None:
    """Show what each verb does, in a report made on this machine."""
    from entourage.cluster.clustering import shipped_networks
    from entourage.cluster.demo import demo_section as cluster_section
    from entourage.embed.demo import demo_section as embed_section
    from entourage.engrave.demo import demo_section as engrave_section
    from entourage.label.demo import demo_section as label_section
    from entourage.report import write_page

    sections = [label_section(), embed_section(), engrave_section()]
    if "points" in shipped_networks():
        sections.insert(2, cluster_section())
    path = out / "report.html"
    write_page(path, "Entourage", "What each verb does, made on this machine by one command.", sections)
    typer.echo(f"The demo is in {path}")

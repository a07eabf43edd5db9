"""`entourage demo`: a report with an example of each command, made from the data and weights in the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from entourage.detect.evaluation.ground_truth import GroundTruthPage


def demo(out: Annotated[Path, typer.Option(help="Folder for report.html.")] = Path("demo")) -> None:
    """Write a report with an example of each command, computed on this machine."""
    others = [path.name for path in sorted(out.glob("[!.]*")) if path.name != "report.html"]
    if others:
        raise ValueError(f"{out}: contains {others[0]}, not written by the demo; expected an empty or a new folder")
    from entourage.cluster.models.network import shipped_networks
    from entourage.demo.learning import cluster_section, embed_section, label_section
    from entourage.demo.music import detect_section, engrave_section, read_section
    from entourage.detect.detector import shipped_detectors
    from entourage.report.page import write_page

    sections = [label_section(), embed_section(), engrave_section()]
    if "points" in shipped_networks():
        sections.insert(2, cluster_section())
    if "default" in shipped_detectors():
        sections += [detect_section(composed_pages()), read_section()]
    path = out / "report.html"
    write_page(path, "Entourage", "An example of each command, computed on this machine.", sections)
    typer.echo(f"The demo is in {path}")


def composed_pages() -> list[GroundTruthPage]:
    """Compose pages with ground truth: two clean pages in two fonts, and a simulated photograph of the first."""
    import cv2

    from entourage.detect.detections import detector_class
    from entourage.detect.evaluation.ground_truth import make_page
    from entourage.engrave.engines.verovio import VerovioEngraver
    from entourage.engrave.options import MusicFont, PageOptions
    from entourage.engrave.render.degrade import Degrader
    from entourage.engrave.scores.composer import compose
    from entourage.engrave.scores.parsing import parse_score

    size = PageOptions(width=1894, height=1000)
    photo = Degrader("photo", size.height, size.width, seed=1)
    pages = []
    for index, font, degrader in ((1, "Leipzig", None), (2, "Petaluma", None), (1, "Leipzig", photo)):
        engraver = VerovioEngraver(size, MusicFont(font))
        score = parse_score(compose(5, index), f"composed {index}")
        page = next(engraver.engrave(score, lambda _, found=degrader: found))  # type: ignore[misc]
        names = [(detector_class(s.label, s.v1), s.v1, s.extended) for s in page.symbols]
        packed = cv2.imencode(".png", page.image)[1].tobytes()
        name = f"{font}, page {index}" + (", photographed" if degrader else "")
        pages.append(make_page(name, Path(f"{index}.png"), size.interline, names, page.boxes, packed=packed))
    return pages

"""The XML file a page of the first DeepScores: classes of V1, boxes as shares of the page's size."""

from __future__ import annotations

from xml.sax.saxutils import escape

from entourage.engrave.render.page import Page


def page_xml(page: Page, filename: str) -> str:
    """The annotation of a page. Readers multiply the corners by the width and height that the file gives."""
    height, width = page.image.shape
    lines = [
        "<annotation>",
        f"  <filename>{escape(filename)}</filename>",
        f"  <size><width>{width}</width><height>{height}</height><depth>1</depth></size>",
    ]
    for symbol, (x0, y0, x1, y1) in zip(page.symbols, page.boxes.tolist(), strict=True):
        if symbol.v1:
            box = f"<xmin>{x0 / width:.8f}</xmin><xmax>{x1 / width:.8f}</xmax>"
            box += f"<ymin>{y0 / height:.8f}</ymin><ymax>{y1 / height:.8f}</ymax>"
            lines.append(f"  <object><name>{symbol.v1}</name><bndbox>{box}</bndbox></object>")
    return "\n".join([*lines, "</annotation>", ""])

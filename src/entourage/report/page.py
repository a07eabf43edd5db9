"""A self-contained HTML page of sections with text, figures, tables and thumbnails."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader
from numpy.typing import NDArray
from PIL import Image

from entourage.extras import extra_imports
from entourage.io.files import write_text
from entourage.report.scripts import bundle, style


@dataclass(frozen=True)
class Thumbnail:
    """Entry of a row of thumbnails: a small image, a sound, or only a name.

    Attributes:
        name: shown below the image and as its tooltip.
        note: a word or number in front of the name.
        picture: data URI made by `thumbnail_data_uri`, or None.
        sound: data URI made by `audio_data_uri`, shown as a player, or None.
    """

    name: str
    note: str = ""
    picture: str | None = None
    sound: str | None = None


@dataclass(frozen=True)
class Block:
    """Part of a section: any of these elements, shown in this order.

    Attributes:
        title: heading.
        text: paragraph.
        figure: an `<svg>` element, such as the result of `figures.to_svg`.
        table: rows of cells; the first row is the header.
        thumbnails: a row of images.
        legend: add a legend that shows and hides the marks of the figure by their class.
        group: class of the whole block; a section with several has a legend that shows and hides them.
        count: number of items that the block stands for in that legend.
    """

    title: str = ""
    text: str = ""
    figure: str = ""
    table: Sequence[Sequence[str]] = ()
    thumbnails: Sequence[Thumbnail] = ()
    legend: bool = False
    group: str = ""
    count: int = 1


@dataclass(frozen=True)
class Section:
    """Section of the HTML page.

    Attributes:
        title: heading.
        lead: summary of one or two sentences.
        blocks: parts shown next to each other.
        wide: parts of full width, below the others.
    """

    title: str
    lead: str = ""
    blocks: Sequence[Block] = ()
    wide: Sequence[Block] = field(default=())


def write_page(path: Path, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Write a page atomically, with its scripts. All text is escaped; only figures are inserted unescaped."""
    environment = Environment(loader=PackageLoader("entourage.report", "."), autoescape=True, trim_blocks=True)
    html = environment.get_template("page.html").render(
        title=title, subtitle=subtitle, sections=sections, script=bundle(), style=style()
    )
    write_text(path, html)


def audio_data_uri(samples: NDArray[np.float32], rate: int) -> str:
    """Encode one channel of audio as a `data:` URI in Ogg Vorbis, about 10 kB per second of speech.

    Args:
        samples: shape (t,), in [-1, 1].
        rate: samples per second.
    """
    with extra_imports():
        import soundfile  # a compiled library that only sounds require

    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format="OGG", subtype="VORBIS")
    return "data:audio/ogg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def thumbnail_data_uri(image: Image.Image, side: int = 96) -> str:
    """Encode an image, reduced to at most side x side pixels, as a `data:` URI of about 3 kB."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def pluralize(number: int, name: str) -> str:
    """Return a number with its noun: (1, "clusters") gives "1 cluster", (1, "classes") gives "1 class"."""
    one = name.removesuffix("es" if name.endswith("sses") else "s")
    return f"{number} {one if number == 1 else name}"

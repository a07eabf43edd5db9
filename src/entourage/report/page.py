"""One HTML page that needs nothing but itself: sections of text, figures, tables and thumbnails.

Numbers of things as they are said.
"""

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

from entourage.io.files import write_text


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, or its name where there is none.

    Attributes:
        name: shown below, and on hover.
        note: a word or number below the name.
        picture: a data address made by `thumbnail_data_uri`, or None.
        sound: a data address made by `audio_data_uri`, or None: a player.
    """

    name: str
    note: str = ""
    picture: str | None = None
    sound: str | None = None


@dataclass(frozen=True)
class Block:
    """A part of a section: any of these, shown in this order.

    Attributes:
        title: a heading.
        text: a paragraph.
        figure: an `<svg>` element, as `figures.to_svg` gives it.
        table: rows of cells, the first being the header.
        thumbnails: a strip of pictures.
    """

    title: str = ""
    text: str = ""
    figure: str = ""
    table: Sequence[Sequence[str]] = ()
    thumbnails: Sequence[Thumbnail] = ()


@dataclass(frozen=True)
class Section:
    """A chapter of the page.

    Attributes:
        title: its heading.
        lead: what it says, in a sentence or two.
        blocks: its parts; those that are `wide` take the whole width, the others stand side by side.
    """

    title: str
    lead: str = ""
    blocks: Sequence[Block] = ()
    wide: Sequence[Block] = field(default=())


def write_page(path: Path, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Writes the page, whole or not at all. All text is escaped; only figures go in as they are."""
    environment = Environment(loader=PackageLoader("entourage.report", "."), autoescape=True, trim_blocks=True)
    html = environment.get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)
    write_text(path, html)


def audio_data_uri(samples: NDArray[np.float32], rate: int) -> str:
    """One channel of sound as a `data:` address, in Ogg Vorbis: some 10 kB for a second of speech."""
    import soundfile  # a compiled library that only those need who have sounds

    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format="OGG", subtype="VORBIS")
    return "data:audio/ogg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def thumbnail_data_uri(image: Image.Image, side: int = 96) -> str:
    """The picture within side x side pixels as a `data:` address, some 3 kB."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def pluralize(number: int, name: str) -> str:
    """The number with what it counts: pluralize(1, "clusters") is "1 cluster", pluralize(1, "classes") is "1 class"."""
    one = name.removesuffix("es" if name.endswith("sses") else "s")
    return f"{number} {one if number == 1 else name}"

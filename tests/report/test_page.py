from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.report.page import Block, Section, Thumbnail, audio_data_uri, thumbnail_data_uri, write_page


def test_page_contains_every_part_of_every_section(tmp_path: Path) -> None:
    block = Block(
        "heading", "paragraph", "<svg id='figure'></svg>", [("a", "b"), ("1", "2")], [Thumbnail("cat", "98%")]
    )
    path = tmp_path / "new" / "page.html"
    write_page(
        path, "title", "subtitle", [Section("one", "lead", blocks=[block]), Section("two", wide=[Block("last")])]
    )
    html = path.read_text(encoding="utf-8")
    for part in ("title", "subtitle", "one", "lead", "heading", "paragraph", "<th>a</th>", "<td>2</td>", "cat", "98%"):
        assert part in html
    assert "<svg id='figure'></svg>" in html  # figures are not escaped
    assert html.index("one") < html.index("two") < html.index("last")


def test_text_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    sections = [
        Section(evil, evil, wide=[Block(evil, evil, table=[(evil,), (evil,)], thumbnails=[Thumbnail(evil, evil)])])
    ]
    write_page(tmp_path / "page.html", evil, evil, sections)
    assert "<script>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_page_is_self_contained(tmp_path: Path) -> None:
    picture = thumbnail_data_uri(Image.new("RGB", (10, 10)))
    write_page(tmp_path / "page.html", "t", "s", [Section("x", wide=[Block(thumbnails=[Thumbnail("n", "", picture)])])])
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "http" not in html
    assert picture in html


def test_thumbnail_keeps_the_aspect_ratio() -> None:
    uri = thumbnail_data_uri(Image.new("RGBA", (400, 200), (255, 0, 0, 255)), side=96)
    head, data = uri.split(",")
    assert head == "data:image/jpeg;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.size == (96, 48)
    red, green, blue = image.getpixel((48, 24))  # type: ignore[misc]
    assert red > 240
    assert max(green, blue) < 20


@pytest.mark.extra("audio")
def test_sounds_are_embedded_with_a_player(tmp_path: Path) -> None:
    import soundfile

    tone = (0.5 * np.sin(np.arange(8000) / 5)).astype(np.float32)
    uri = audio_data_uri(tone, 16000)
    head, data = uri.split(",")
    assert head == "data:audio/ogg;base64"
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(data)))
    assert rate == 16000
    np.testing.assert_allclose(samples, tone, atol=0.1)
    strip = [Thumbnail("voice", "9", sound=uri), Thumbnail("silent")]
    write_page(tmp_path / "page.html", "t", "s", [Section("x", wide=[Block(thumbnails=strip)])])
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.count("<audio") == html.count(uri) == 1

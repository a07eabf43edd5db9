from __future__ import annotations

import io
import struct
import sys
import warnings
import zlib
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.detect.synthetic import staff_page

from entourage.data.media import UnreadableImageError
from entourage.detect.preprocessing import reading
from entourage.detect.preprocessing.reading import RawPage, list_pages, page_source, read_page, read_pages


def save(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def readable_pages(path: Path, done: Container[int] = ()) -> list[RawPage]:
    """Return the pages of a file in which all pages are readable."""
    pages = []
    for raw_page in read_pages(path, done):
        assert isinstance(raw_page, RawPage)
        pages.append(raw_page)
    return pages


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp", "pdf"])
def test_a_page_is_the_same_in_every_format(tmp_path: Path, suffix: str) -> None:
    page = staff_page()
    path = save(tmp_path / f"a.{suffix}", Image.fromarray(page), **({"resolution": 300} if suffix == "pdf" else {}))
    (raw_page,) = readable_pages(path)
    assert (raw_page.name, raw_page.number) == ("a", None)
    assert raw_page.image.dtype == np.uint8
    difference = np.abs(raw_page.image.astype(int) - page)
    assert difference.mean() < (3 if suffix == "pdf" else 1e-9)  # PDF holds JPEG


def test_all_modes_become_grayscale(tmp_path: Path) -> None:
    page = staff_page(height=200, staves=1)
    grey = Image.fromarray(page)
    deep = Image.fromarray(page.astype(np.uint16) * 257)
    clear = Image.merge("LA", [Image.new("L", grey.size, 0), Image.fromarray(255 - page)])  # black on transparent
    modes = {"1": grey.convert("1"), "RGB": grey.convert("RGB"), "P": grey.convert("P"), "deep": deep, "clear": clear}
    for name, image in modes.items():
        np.testing.assert_array_equal(read_page(save(tmp_path / f"{name}.png", image)), page, err_msg=name)
    four = read_page(save(tmp_path / "c.tif", grey.convert("RGB").convert("CMYK")))
    np.testing.assert_allclose(four, page, atol=2)


def test_pages_are_rotated_according_to_exif(tmp_path: Path) -> None:
    page = staff_page(height=300, width=200, staves=1)
    exif = Image.Exif()
    exif[0x0112] = 6  # upright after a rotation by 90 degrees clockwise
    path = save(tmp_path / "a.png", Image.fromarray(page), exif=exif)
    np.testing.assert_array_equal(read_page(path), np.rot90(page, -1))


def test_tiff_and_pdf_files_may_have_several_pages(tmp_path: Path) -> None:
    pages = [Image.fromarray(staff_page(interline=10 + n, height=300)) for n in range(3)]
    for suffix in ("tif", "pdf"):
        path = save(tmp_path / f"score.{suffix}", pages[0], save_all=True, append_images=pages[1:])
        read = readable_pages(path)
        assert [raw_page.name for raw_page in read] == ["score-1", "score-2", "score-3"]
        assert [raw_page.number for raw_page in read] == [1, 2, 3]
        assert [raw_page.number for raw_page in readable_pages(path, {1, 3})] == [2]  # the others are done


@pytest.mark.parametrize("suffix", ["tif", "pdf"])
def test_a_page_is_read_by_its_source(tmp_path: Path, suffix: str) -> None:
    pages = [Image.fromarray(staff_page(interline=10 + n, height=300)) for n in range(3)]
    path = save(tmp_path / f"score.{suffix}", pages[0], save_all=True, append_images=pages[1:])
    for raw_page in readable_pages(path):
        np.testing.assert_array_equal(read_page(page_source(path, raw_page.number)), raw_page.image)
    assert page_source("a.png", None) == "a.png"
    np.testing.assert_array_equal(read_page(path), read_page(f"{path}#1"))
    with pytest.raises(UnreadableImageError, match="#4: no such page"):
        read_page(f"{path}#4")
    with pytest.raises(UnreadableImageError, match="#0: no such file"):
        read_page(f"{path}#0")
    odd = save(tmp_path / "odd.png#2", pages[1], format="PNG")  # an existing file of that name
    np.testing.assert_array_equal(read_page(odd), np.asarray(pages[1]))


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize(("kept", "readable"), [(0.95, 3), (0.6, 2), (0.3, 1)])
def test_the_readable_pages_of_a_truncated_tiff_are_read(
    tmp_path: Path, compression: str | None, kept: float, readable: int
) -> None:
    rng = np.random.default_rng(0)
    pages = [Image.fromarray(rng.integers(0, 256, (200, 300), dtype=np.uint8)) for _ in range(4)]
    path = save(tmp_path / "scan.tif", pages[0], save_all=True, append_images=pages[1:], compression=compression)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        found = list(read_pages(path))
    assert not [one for one in caught_warnings if issubclass(one.category, UserWarning)]  # the error suffices
    assert [raw_page.name for raw_page in found if isinstance(raw_page, RawPage)] == [
        f"scan-{n + 1}" for n in range(readable)
    ]
    np.testing.assert_array_equal(read_page(f"{path}#{readable}"), np.asarray(pages[readable - 1]))
    error = found[readable]
    assert isinstance(error, UnreadableImageError)
    assert len(found) == readable + 1  # one error, though more pages may be missing
    assert str(error).startswith(f"cannot read image {path}#{readable + 1}: ")
    assert "\n" not in str(error)


@pytest.mark.parametrize("pages", [1, 2])
def test_a_truncated_tiff_gives_no_warning_of_pillow(tmp_path: Path, pages: int) -> None:
    page = Image.fromarray(staff_page(height=300))
    path = save(tmp_path / "scan.tif", page, save_all=True, append_images=[page] * (pages - 1))
    content = path.read_bytes()
    (first,) = struct.unpack("<I", content[4:8])  # offset of the tags of the first page
    path.write_bytes(content[: first + 30])
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        with pytest.raises(UnreadableImageError) as caught:
            list(read_pages(path))
    assert not [one for one in caught_warnings if issubclass(one.category, UserWarning)]  # the error suffices
    assert "\n" not in str(caught.value)


def test_pages_after_a_damaged_page_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pages = [Image.fromarray(rng.integers(0, 256, (200, 300), dtype=np.uint8)) for _ in range(3)]
    path = save(tmp_path / "scan.tif", pages[0], save_all=True, append_images=pages[1:], compression="tiff_lzw")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = b"\xff" * 200
    path.write_bytes(data)
    first, second, third = read_pages(path)
    assert isinstance(second, UnreadableImageError)
    assert isinstance(first, RawPage)
    assert isinstance(third, RawPage)
    np.testing.assert_array_equal(third.image, np.asarray(pages[2]))
    with pytest.raises(UnreadableImageError, match=r"scan\.tif#2: "):
        read_page(f"{path}#2")


def huge_png(path: Path, width: int, height: int) -> Path:
    """Write a header with this many pixels, followed by almost no data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize("size", [(20_000, 10_000), (10_000, 8_900), (60_000, 60_000)])
def test_a_huge_page_is_rejected_by_its_header(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("the image was decoded"))
    path = huge_png(tmp_path / "huge.png", *size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also against Pillow's warning about its own limit
        with pytest.raises(ValueError, match=r"huge\.png: .*expected at most 80") as caught:
            list(read_pages(path))
    assert "\n" not in str(caught.value)


def test_a_huge_pdf_page_is_rendered_at_a_lower_resolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.pdf", Image.fromarray(staff_page()), resolution=300)
    monkeypatch.setattr(reading, "MAX_PIXELS", 100_000)
    (raw_page,) = readable_pages(path)
    assert raw_page.image.size <= 100_000
    assert "dpi" in raw_page.message


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.png", b"no image at all", "not an image"),
        ("a.pdf", b"%PDF-1.7 and nothing else", "cannot read image.*damaged; expected a PDF file$"),
        ("eps.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n", "not an image"),
        ("empty.png", b"", "not an image"),
    ],
)
def test_corrupt_files_raise_with_one_line(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        list(read_pages(tmp_path / name))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_or_missing_image_is_named(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200), dtype=np.uint8)).save(stream, "PNG")
    (tmp_path / "cut.png").write_bytes(stream.getvalue()[:5000])
    with pytest.raises(ValueError, match=r"cut\.png: image file is truncated"):
        list(read_pages(tmp_path / "cut.png"))
    with pytest.raises(ValueError, match=r"absent\.png: no such file"):
        read_page(tmp_path / "absent.png")


def test_only_the_pages_of_engraved_data_sets_are_listed(tmp_path: Path) -> None:
    for name in ("images/a.png", "instances/a.png", "segmentation/a.png", "symbols.parquet"):
        for data in (tmp_path / "sets" / "one", tmp_path / "sets" / "two"):
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).touch()
    (tmp_path / "sets" / "scan.png").touch()
    one, two = tmp_path / "sets" / "one", tmp_path / "sets" / "two"
    assert list_pages([one]) == [one / "images" / "a.png"]
    assert list_pages([one.parent]) == [one / "images" / "a.png", one.parent / "scan.png", two / "images" / "a.png"]
    assert list_pages([one / "instances"]) == [one / "instances" / "a.png"]  # masks are listed when given explicitly
    (two / "symbols.parquet").unlink()
    assert len(list_pages([two])) == 3


def test_pages_are_listed_in_order_once_and_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.png", "a.PDF", "sub/c.jpeg", ".hidden.png", ".cache/d.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = list_pages([tmp_path / "b.png", tmp_path])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["b.png", "a.PDF", "sub/c.jpeg"]
    with pytest.raises(ValueError, match=r"nothing: .*; expected an image, a PDF file or a"):
        list_pages([tmp_path / "nothing"])
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="expected files named"):
        list_pages([tmp_path / "void"])


def test_threads_do_not_change_the_filters_of_warnings(tmp_path: Path) -> None:
    page = Image.fromarray(staff_page(height=100, staves=1))
    paths = [save(tmp_path / f"{n}.tif", page, save_all=True, append_images=[page]) for n in range(8)]
    with warnings.catch_warnings():
        before = list(warnings.filters)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # threads are switched often
        try:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(read_page, paths * 20))
        finally:
            sys.setswitchinterval(interval)
        assert list(warnings.filters) == before


def test_filters_that_other_code_sets_or_removes_meanwhile_stay(tmp_path: Path) -> None:
    page = Image.fromarray(staff_page(height=100, staves=1))
    path = save(tmp_path / "scan.tif", page, save_all=True, append_images=[page])
    with warnings.catch_warnings():
        before = list(warnings.filters)
        with reading._ignore_pillow_warnings():
            warnings.filterwarnings("error", message="other")
            assert len(readable_pages(path)) == 2
            with warnings.catch_warnings():
                warnings.resetwarnings()
        assert list(warnings.filters)[1:] == before
        with reading._ignore_pillow_warnings():
            warnings.resetwarnings()
        assert list(warnings.filters) == []

import io
import zipfile

import pytest

from entourage.engrave.scores.notations import read_limited, unpack_mxl, zip_errors

CONTAINER = '<container><rootfiles><rootfile full-path="music.xml"/></rootfiles></container>'


def mxl(score: bytes, *, container: str = CONTAINER) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("aaa.xml", b"<other/>")
        if container:
            archive.writestr("META-INF/container.xml", container)
        archive.writestr("music.xml", score)
    return stream.getvalue()


def unpack(container: str = CONTAINER) -> bytes:
    return unpack_mxl(mxl(b"<the-score/>", container=container), 1000, "song.mxl")


def test_container_selects_the_score() -> None:
    assert unpack() == b"<the-score/>"
    assert unpack("") == unpack(" ") == unpack("<container/>") == b"<other/>"
    assert unpack(CONTAINER.replace("music.xml", "lost.xml")) == b"<other/>"


@pytest.mark.parametrize(
    "container",
    [
        "<?xml version='1.0'?><container><rootfiles><rootfile full-path='music.xml'/></rootfiles></container>",
        "<c:container xmlns:c='urn:c'><c:rootfile\n media-type='x' full-path = 'music.xml'/></c:container>",
        '<!-- full-path="aaa.xml" --><container><rootfile full-path="music.xml"/></container>',
        '<container><rootfile full-path="cover.png"/><rootfile full-path="music.xml"/></container>',
    ],
)
def test_container_is_parsed_as_xml(container: str) -> None:
    assert unpack(container) == b"<the-score/>"


def test_container_that_is_not_xml_raises() -> None:
    with pytest.raises(ValueError, match=r"song\.mxl: META-INF/container\.xml .*; expected a list of scores"):
        unpack("<container>")


def test_unpacked_size_is_limited() -> None:
    assert unpack_mxl(mxl(b"x" * 1000), 1000, "song.mxl") == b"x" * 1000
    with pytest.raises(ValueError, match=r"song\.mxl: is larger than 0 MB; expected one score"):
        unpack_mxl(mxl(b"x" * 1001), 1000, "song.mxl")
    with pytest.raises(ValueError, match=r"song\.mxl: .*; expected one score"):
        unpack_mxl(mxl(b"<the-score/>", container=CONTAINER + " " * 1000), 1000, "song.mxl")


def test_read_limited_closes_the_stream() -> None:
    short, long = io.BytesIO(b"abc"), io.BytesIO(b"abcd")
    assert read_limited(short, 3, "it") == b"abc"
    with pytest.raises(ValueError, match=r"it: .*; expected one score"):
        read_limited(long, 3, "it")
    assert short.closed
    assert long.closed


def test_mxl_without_score_raises() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("META-INF/other.xml", b"<a/>")
    with pytest.raises(ValueError, match=r"song\.mxl: holds no score; expected a MusicXML file inside"):
        unpack_mxl(stream.getvalue(), 1000, "song.mxl")


def test_a_small_file_may_not_unpack_to_a_huge_score() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("music.xml", b"<score-partwise>" + b"<a/>" * 2**23 + b"</score-partwise>")
    assert len(stream.getvalue()) < 60_000
    with pytest.raises(ValueError, match=r"song\.mxl: is larger than [4-6] MB; expected one score"):
        unpack_mxl(stream.getvalue(), 2**26, "song.mxl")


def test_errors_of_damaged_archives_are_not_value_errors() -> None:
    content = bytearray(mxl(b"<the-score/>"))
    content[-6] ^= 0xFF  # offset of the directory, in the last 22 bytes
    with pytest.raises(zipfile.BadZipFile):
        unpack_mxl(bytes(content), 1000, "song.mxl")
    with pytest.raises(zipfile.BadZipFile, match="negative seek value"), zip_errors():
        io.BytesIO().seek(-1)


def test_messages_about_containers_are_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"^song\.mxl: META-INF/container\.xml .*: .+; expected a list of scores$"
    ) as caught:
        unpack("<container>\0")
    assert "\n" not in str(caught.value)

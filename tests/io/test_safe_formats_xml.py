from pathlib import Path

import pytest
from lxml import etree

from entourage.io.safe_formats import parse_xml


def test_entities_are_not_resolved(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    text = f'<!DOCTYPE a [<!ENTITY in "inside"><!ENTITY out SYSTEM "{secret.as_uri()}">]><a>&in;<b>&out;</b></a>'
    read = etree.tostring(parse_xml(text.encode()).find("b"), encoding="unicode", method="text")
    assert "hidden" not in read
    assert "inside" not in "".join(parse_xml(text.encode()).itertext(etree.Element))


def test_comments_are_kept_or_removed() -> None:
    data = b"<a><!-- b --><c/></a>"
    assert [len(parse_xml(data)), len(parse_xml(data, comments=False))] == [2, 1]


def test_deep_xml_is_parsed_and_malformed_xml_raises() -> None:
    deep = parse_xml(b"<a>" * 400 + b"</a>" * 400)
    assert sum(1 for _ in deep.iter("a")) == 400
    with pytest.raises(etree.XMLSyntaxError):
        parse_xml(b"<a>")


def test_dtds_are_not_loaded() -> None:
    data = b'<!DOCTYPE a PUBLIC "-//x" "http://example.invalid/a.dtd"><a id="b"/>'
    assert parse_xml(data).tag == "a"
    assert parse_xml(b'<a id="b"/>', ids=False).get("id") == "b"

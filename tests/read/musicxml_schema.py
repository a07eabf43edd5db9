"""Validation against the schema of MusicXML 4.0, which the package `musicxml` contains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lxml import etree

# The attributes of two other schemas that the schema of MusicXML refers to by addresses on the network.
_ATTRIBUTES = {
    "xlink": ("http://www.w3.org/1999/xlink", ("href", "type", "role", "title", "show", "actuate")),
    "xml": ("http://www.w3.org/XML/1998/namespace", ("lang", "space")),
}


def _attribute_schema(namespace: str, names: Sequence[str]) -> str:
    rows = "".join(f'<xs:attribute name="{name}" type="xs:string"/>' for name in names)
    head = f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{namespace}">'
    return f"{head}{rows}</xs:schema>"


@cache
def _schema() -> etree.XMLSchema:
    spec = find_spec("musicxml")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent / "generate_classes"
    text = (package / "musicxml_4_0.xsd").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        local = Path(folder)
        (local / "musicxml.xsd").write_text(text.replace("http://www.musicxml.org/xsd/", ""), encoding="utf-8")
        for name, (namespace, attributes) in _ATTRIBUTES.items():
            (local / f"{name}.xsd").write_text(_attribute_schema(namespace, attributes), encoding="utf-8")
        return etree.XMLSchema(etree.parse(str(local / "musicxml.xsd"), etree.XMLParser(no_network=True)))


def schema_errors(musicxml: str) -> list[str]:
    """Return the violations of the schema in a document."""
    parser = etree.XMLParser(load_dtd=False, no_network=True)
    schema = _schema()
    schema.validate(etree.fromstring(musicxml.encode("utf-8"), parser))
    return [f"line {error.line}: {error.message}" for error in schema.error_log]

"""XML from strangers: read without resolving entities, loading other files or reaching the network."""

from __future__ import annotations

from lxml import etree


def parse_xml(data: bytes, *, comments: bool = True, ids: bool = True) -> etree._Element:
    """The root of an XML document, however large or deep it is.

    Args:
        data: the document.
        comments: keep them.
        ids: index elements by their ids, which costs time. Without it lxml insists on the DTD that a document names,
            so that only documents without any can be read.

    Raises:
        lxml.etree.XMLSyntaxError: it is not well-formed.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,
        collect_ids=ids,
        remove_comments=not comments,
    )
    return etree.fromstring(data, parser)

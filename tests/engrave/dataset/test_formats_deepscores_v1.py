from collections.abc import Callable
from xml.etree import ElementTree

from entourage.engrave.dataset.formats import page_xml
from entourage.engrave.render.page import Page


def test_boxes_are_relative_to_the_page_size(engrave: Callable[[str], Page], musicxml: str) -> None:
    page = engrave(musicxml)
    root = ElementTree.fromstring(page_xml(page, "a&b.png"))
    width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    assert (height, width) == page.image.shape
    assert root.findtext("filename") == "a&b.png"
    expected = [(s.v1, *box) for s, box in zip(page.symbols, page.boxes.tolist(), strict=True) if s.v1]
    found = [
        (
            item.findtext("name"),
            *(round(float(item.findtext(f"bndbox/{side}", "")) * width) for side in ("xmin",)),
            *(round(float(item.findtext(f"bndbox/{side}", "")) * height) for side in ("ymin",)),
            *(round(float(item.findtext(f"bndbox/{side}", "")) * width) for side in ("xmax",)),
            *(round(float(item.findtext(f"bndbox/{side}", "")) * height) for side in ("ymax",)),
        )
        for item in root.iter("object")
    ]
    assert found == expected
    assert "stem" not in {name for name, *_ in found}  # V1 has no class for it

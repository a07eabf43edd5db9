"""Figures and the HTML report, in one look for all verbs."""

from entourage.report.counted import counted
from entourage.report.figures import bars, curve, histogram, house_style, raster_figure, to_svg
from entourage.report.page import Block, Section, Thumbnail, sound_address, thumbnail_address, write_page

__all__ = [
    "Block",
    "Section",
    "Thumbnail",
    "bars",
    "counted",
    "curve",
    "histogram",
    "house_style",
    "raster_figure",
    "sound_address",
    "thumbnail_address",
    "to_svg",
    "write_page",
]

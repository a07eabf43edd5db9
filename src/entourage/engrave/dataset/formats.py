"""How annotations are written: a table of all symbols first, and every other format from it."""

from entourage.engrave.dataset.coco import write_coco
from entourage.engrave.dataset.deepscores_v1 import page_xml
from entourage.engrave.dataset.deepscores_v2 import write_deepscores
from entourage.engrave.dataset.table import SCHEMA, page_table, read_table

__all__ = ["SCHEMA", "page_table", "page_xml", "read_table", "write_coco", "write_deepscores"]

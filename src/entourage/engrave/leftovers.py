"""Files of a data set that nothing names any more: pages a score no longer has, and scores that are no longer given.

Only what this command has written is removed: files in the folders of pages and sources whose name is that of a task
that was begun here, as `.state` knows. Whatever else lies in the data set is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from entourage.engrave.work import BEGUN, STATE

_PAGES = {"images": ".png", "segmentation": "_seg.png", "instances": "_inst.png", "xml_annotations": ".xml"}
_SOURCES = (".mxl", ".mei", ".abc", ".krn")


def remove_leftovers(out: Path, done: Collection[str], files: Collection[str]) -> list[str]:
    """Removes what tasks have left that no finished task names.

    Args:
        out: the data set.
        done: the names of the finished tasks.
        files: the files of finished tasks, as paths in the data set.

    Returns:
        The files of pages and sources that were removed, as paths in the data set, in order.
    """
    state = out / STATE
    parts = {path.stem: path for path in state.glob("*.parquet")}
    begun = {path.name.removesuffix(BEGUN): path for path in state.glob(f"*{BEGUN}")}
    known = parts.keys() | begun.keys()
    removed = sorted(place for place, name in _written(out) if name in known and place not in files)
    for place in removed:
        (out / place).unlink(missing_ok=True)
    for name, path in parts.items():
        if name not in done:
            path.unlink(missing_ok=True)
    for path in begun.values():  # last of all: a run that is killed here still knows the names
        path.unlink(missing_ok=True)
    return removed


def _written(out: Path) -> Iterator[tuple[str, str]]:
    """The files that have a name as this command gives it, and the name of the task that would have written each."""
    for folder, end in _PAGES.items():
        for path in (out / folder).glob(f"*{end}"):
            page = re.fullmatch(rf"(.+)-\d+{re.escape(end)}", path.name)
            if page and path.is_file() and not path.is_symlink():
                yield f"{folder}/{path.name}", page[1]
    for path in (out / "sources").glob("*"):
        if path.suffix in _SOURCES and path.is_file() and not path.is_symlink():
            yield f"sources/{path.name}", path.stem

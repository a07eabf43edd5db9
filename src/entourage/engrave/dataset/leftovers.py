"""Files of a data set that nothing names any more: pages a score no longer has, and scores that are no longer given.

Only what a task has noted that it writes is removed. Whatever else lies in the data set is not touched, however it is
called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from entourage.engrave.dataset.parts import FOLDERS, begun_paths, begun_places, part_paths, part_places


def remove_leftovers(
    out: Path, done: Collection[str], files: Collection[str], sources: Iterable[Path] = ()
) -> list[str]:
    """Removes what tasks have left that no finished task names.

    Args:
        out: the data set.
        done: the names of the finished tasks.
        files: the files of finished tasks, as paths in the data set.
        sources: the files that scores were read from; they stay, even if an earlier run has written them.

    Returns:
        The files of pages and sources that were removed, as paths in the data set, in order.
    """
    parts, begun = part_paths(out), begun_paths(out)
    noted = {place for path in parts.values() for place in part_places(path)}
    noted |= {place for path in begun.values() for place in begun_places(path)}
    read = {path.resolve() for path in sources}
    removed = sorted(place for place in noted.difference(files) if _is_ours(out, place, read))
    for place in removed:
        (out / place).unlink(missing_ok=True)
    for name, path in parts.items():
        if name not in done:
            path.unlink(missing_ok=True)
    for path in begun.values():  # last of all: a run that is killed here still knows the places
        path.unlink(missing_ok=True)
    return removed


def _is_ours(out: Path, place: str, read: Collection[Path]) -> bool:
    """Whether something is to be removed there: a damaged note must lead to nothing outside the folders of tasks."""
    path = out / place
    inside = len(PurePosixPath(place).parts) == 2 and PurePosixPath(place).parts[0] in FOLDERS
    return inside and path.is_file() and not path.is_symlink() and path.resolve() not in read

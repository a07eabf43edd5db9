"""Which item is meant: by its full name, or by the end of its path if only one item ends so."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath


class ItemMatcher:
    """Finds items by the names people write into a CSV file.

    `cat1.jpg` and `photos/cat1.jpg` both mean `2019/photos/cat1.jpg`, as long as no other item ends in the same way.
    Only whole parts of a path count: `1.jpg` does not mean `cat1.jpg`.

    Args:
        items: the names of all items, n of them. Costs O(n) time and memory; a look-up costs O(1) on average.
    """

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items
        self._exact = set(items)
        self._by_last_part: dict[str, list[str]] = defaultdict(list)
        for item in dict.fromkeys(items):
            parts = _parts(item)
            if parts:
                self._by_last_part[parts[-1]].append(item)

    def find(self, name: str) -> list[str]:
        """All items that `name` may mean: one if all is well, none if it is missing, several if it is ambiguous."""
        for exact in (name, name.strip()):
            if exact in self._exact:
                return [exact]
        parts = _parts(name.strip())
        if not parts:
            return []
        alike = self._by_last_part.get(parts[-1], [])
        return [item for item in alike if _parts(item)[-len(parts) :] == parts]


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a path, from either kind of slash."""
    return PurePosixPath(name.replace("\\", "/")).parts

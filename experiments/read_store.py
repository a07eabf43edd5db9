"""Engraved pages in a folder: each is engraved once, and measured also where the engravers are not installed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from entourage.io.files import atomic_path, read_json_object, write_json
from experiments.read_works import Engine, EngravedPage, Excerpt, Split, engrave_page, quartets, songs

Music = Literal["songs", "quartets"]


class PageStore:
    """A folder of engraved pages with their truth; without a folder, pages are engraved each time.

    Args:
        folder: the folder; it is created with the first page.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def pages(
        self, music: Music, split: Split, engine: Engine, count: int
    ) -> Iterator[tuple[str, Callable[[], EngravedPage]]]:
        """Iterate over the names of the pages of a split, each with a function that returns the page.

        Args:
            music: kind of works.
            split: works to take.
            engine: program that engraves them.
            count: maximum number of pages.

        Raises:
            ValueError: the works are missing and their names are not in the folder.
        """
        for excerpt in self._excerpts(music, split)[:count]:
            yield excerpt.name, partial(self._page, excerpt, engine)

    def _excerpts(self, music: Music, split: Split) -> list[Excerpt]:
        """Return the works of a split; those of the folder, if it has their names."""
        names = self._folder / f"{music}-{split}.json" if self._folder is not None else None
        if names is not None and names.exists():
            stored = read_json_object(names).get("names", [])
            return [Excerpt(str(name), partial(_find, music, split, str(name))) for name in stored]
        found = _works(music, split)
        if names is not None:
            names.parent.mkdir(parents=True, exist_ok=True)
            write_json(names, {"names": [excerpt.name for excerpt in found]}, indent=1)
        return found

    def _page(self, excerpt: Excerpt, engine: Engine) -> EngravedPage:
        """Return a page of the folder; engrave it if it is missing."""
        if self._folder is None:
            return engrave_page(excerpt, engine)
        picture = self._folder / engine / f"{excerpt.name}.webp"
        truth = picture.with_suffix(".musicxml")
        if not truth.exists():  # written last
            page = engrave_page(excerpt, engine)
            picture.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(picture) as temporary:
                data = io.BytesIO()
                Image.fromarray(page.image).save(data, "webp", lossless=True, quality=80, method=4)
                temporary.write_bytes(data.getvalue())
            with atomic_path(truth) as temporary:
                temporary.write_text(page.truth, encoding="utf-8")
            return page
        with Image.open(picture) as image:
            return EngravedPage(excerpt.name, truth.read_text(encoding="utf-8"), np.asarray(image.convert("L")))


def _find(music: Music, split: Split, name: str) -> str:
    """Return the MusicXML of a work."""
    return next(excerpt.text for excerpt in _works(music, split) if excerpt.name == name)


@cache
def _works(music: Music, split: Split) -> list[Excerpt]:
    return songs(split) if music == "songs" else quartets(split)

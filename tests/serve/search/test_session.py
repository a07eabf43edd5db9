from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.serve.search.conftest import COLORS, encoded, picture

from entourage.data.labels import read_labels
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.vector_index import Index
from entourage.serve.search.session import SearchSession, refused_name


def names(session: SearchSession, items: list[int], uploads: list[int], name: str = "x", limit: int = 3) -> list[str]:
    return [str(item["name"]) for item in session.find(items, uploads, name, limit)]


def test_a_picture_finds_the_nearest_items(session: SearchSession) -> None:
    upload = session.upload(encoded(picture(COLORS["green"], 5)))
    assert {name.split("-")[0] for name in names(session, [], [upload], limit=4)} == {"green"}


def test_an_item_finds_its_neighbours_but_not_itself(session: SearchSession) -> None:
    row = session.index.row_of["blue-1.png"]
    found = names(session, [row], [], limit=3)
    assert {name.split("-")[0] for name in found} == {"blue"}
    assert "blue-1.png" not in found


def test_accepted_and_refused_items_change_what_is_found(session: SearchSession) -> None:
    upload = session.upload(encoded(picture((120, 20, 120))))  # between red and blue
    before = session.find([], [upload], "warm", 8)
    assert {item["name"].split("-")[0] for item in before} == {"red", "blue"}
    session.labels.change(lambda store: store.label(["red-0.png"], "warm"))
    session.labels.change(lambda store: store.label(["blue-0.png", "blue-1.png"], refused_name("warm")))
    after = names(session, [], [upload], "warm", 3)
    assert after == ["red-1.png", "red-2.png", "red-3.png"] or {name.split("-")[0] for name in after} == {"red"}
    assert not {"red-0.png", "blue-0.png", "blue-1.png"} & set(names(session, [], [upload], "warm", 12))


def test_what_was_found_is_a_file_of_labels(session: SearchSession, images: Path, embedder: Embedder) -> None:
    session.labels.change(lambda store: store.label(["red-0.png"], "warm"))
    session.labels.change(lambda store: store.label(["blue-0.png"], refused_name("warm")))
    path = session.folder / "found.csv"
    assert read_labels(path, session.index.items) == {"red-0.png": "warm", "blue-0.png": "not warm"}
    with path.open(newline="") as stream:
        assert next(csv.reader(stream)) == ["item", "label"]
    again = SearchSession(session.folder, images, embedder)
    assert again.labels.version == 2
    Index.build(images, session.folder, embedder)  # the index can still be updated
    assert read_labels(path, session.index.items)["red-0.png"] == "warm"


def test_vectors_have_neither_pictures_nor_a_network(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", np.eye(4, dtype=np.float32))
    Index.build(tmp_path / "vectors.npy", tmp_path / "index")
    session = SearchSession(tmp_path / "index", tmp_path / "vectors.npy")
    assert (session.pictures, session.has_network) == (None, False)
    assert len(session.find([2], [], "x", 10)) == 3
    with pytest.raises(ValueError, match="expected"):
        session.upload(encoded(picture((1, 2, 3))))


def test_invalid_queries_raise(session: SearchSession) -> None:
    for items, uploads, name in (([], [], "query"), ([99], [], "items"), ([], [7], "picture")):
        with pytest.raises(ValueError, match=f"{name}: .*expected"):
            session.find(items, uploads, "x", 3)
    for content, message in (("not base64!", "image: .*; expected a picture in base64"), ("aGFsbG8=", "not an image")):
        with pytest.raises(ValueError, match=message):
            session.upload(content)


def test_a_source_without_the_items_raises(session: SearchSession, images: Path, embedder: Embedder) -> None:
    (images / "red-0.png").unlink()
    with pytest.raises(ValueError, match=r"has no image 'red-0.png'; expected"):
        SearchSession(session.folder, images, embedder)

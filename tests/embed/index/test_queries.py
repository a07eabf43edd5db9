from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.embed.index.embedder import Embedder
from entourage.embed.index.queries import Query, query_vectors, resolve_queries

ITEMS = ["a/1.png", "b/1.png", "b/2.png"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for item in ITEMS:
        (tmp_path / "data" / item).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "data" / item)
    return tmp_path / "data"


def names(queries: list[Query]) -> list[str | None]:
    return [query.item for query in queries]


def resolve(source: Path, *queries: str) -> list[Query]:
    return resolve_queries(queries, ITEMS, str(source))


def test_names_of_items(source: Path) -> None:
    assert names(resolve(source, "b/1.png", "2.png", str(source / "a" / "1.png"))) == ["b/1.png", "b/2.png", "a/1.png"]


def test_folders_and_patterns_are_several_queries(source: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "other" / "3.png")
    assert names(resolve(source, str(source / "b"))) == ["b/1.png", "b/2.png"]
    assert names(resolve(source, f"{source}/*/1.png")) == ["a/1.png", "b/1.png"]
    (query,) = resolve(source, str(tmp_path / "other"))
    assert (query.item, query.file) == (None, tmp_path / "other" / "3.png")


def test_vectors_are_queries(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.eye(2))
    first, second = resolve(source, str(tmp_path / "q.npy"))
    assert first.name.endswith("q.npy: 0")
    vectors = query_vectors([first, second], np.zeros((3, 2), dtype=np.float32), {}, lambda: pytest.fail("loaded"))
    np.testing.assert_array_equal(vectors, np.eye(2))
    with pytest.raises(ValueError, match=r"q.npy: 0': 2 numbers; expected 3"):
        query_vectors([first], np.zeros((3, 3), dtype=np.float32), {}, lambda: pytest.fail("loaded"))


def test_items_need_no_network_and_files_do(source: Path, toys: object) -> None:
    embedder = Embedder.from_backbone(toys.backbone())  # type: ignore[attr-defined]
    stored = np.eye(3, 8, dtype=np.float32)
    row_of = {item: row for row, item in enumerate(ITEMS)}
    item, file = Query("2", item="b/2.png"), Query("f", file=source / "a" / "1.png")
    np.testing.assert_array_equal(query_vectors([item], stored, row_of, lambda: pytest.fail("loaded")), stored[2:])
    vectors = query_vectors([item, file], stored, row_of, lambda: embedder)
    np.testing.assert_array_equal(vectors[0], stored[2])
    np.testing.assert_allclose(vectors[1], embedder.embed(source / "a" / "1.png").vectors[0], atol=1e-6)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("1.png", "query '1.png': matches 'a/1.png' and 'b/1.png' of .*; expected a longer part"),
        ("9.png", "query '9.png': not found; expected an item of .* or an image file, a folder, a pattern or vectors"),
        ("none*.png", r"query 'none.*.png': not found; expected an item of"),
    ],
)
def test_unknown_and_ambiguous_queries_raise(source: Path, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(source, query)

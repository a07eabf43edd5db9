from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.embed import Embedder, Index
from entourage.embed.index.approximate import top_cosines


@pytest.fixture
def index(tmp_path: Path) -> Index:
    values = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "v.npy", values)
    return Index.build(tmp_path / "v.npy", tmp_path / "index")


def test_search_finds_the_largest_cosines(index: Index) -> None:
    queries = np.random.default_rng(1).normal(size=(4, 6)) * 5  # of any length
    hits = index.search(queries, top_k=3)
    for query, found in zip(queries, hits, strict=True):
        cosines = index.vectors @ (query / np.linalg.norm(query))
        order = np.argsort(-cosines)[:3]
        assert [hit.item for hit in found] == [str(row) for row in order]
        assert [hit.cosine for hit in found] == pytest.approx(cosines[order].tolist(), abs=1e-6)
        assert {hit.label for hit in found} == {""}


def test_excluded_rows_and_thresholds(index: Index) -> None:
    (first, second) = index.search(index.vectors[[7, 8]], top_k=3, exclude=[7, None])
    assert "7" not in [hit.item for hit in first]
    assert second[0].item == "8"
    assert (len(first), len(second)) == (3, 3)
    assert len(index.search(index.vectors[:1], top_k=1000)[0]) == 50
    (limited,) = index.search(index.vectors[:1], top_k=1000, threshold=0.5)
    assert limited
    assert all(hit.cosine >= 0.5 for hit in limited)


def test_invalid_queries_raise(index: Index) -> None:
    with pytest.raises(ValueError, match=r"queries have shape \(1, 5\); expected \(queries, 6\)"):
        index.search(np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"queries .*; expected finite numbers"):
        index.search(np.full((1, 6), np.nan))
    with pytest.raises(ValueError, match="top_k is 0; expected a whole number of 1 or more"):
        index.search(np.zeros((1, 6)), top_k=0)
    with pytest.raises(ValueError, match="an index of vectors; expected queries that are items or vectors"):
        _ = index.embedder


def test_folders_without_an_index_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"contains no current.json; expected an index"):
        Index.load(tmp_path)


@pytest.mark.parametrize(("kind", "message"), [("vectors", "cannot be read"), ("items", "damaged")])
def test_damaged_files_raise(index: Index, kind: str, message: str) -> None:
    (path,) = index.folder.glob(f"{kind}*")
    path.write_text("[]")
    with pytest.raises(ValueError, match=f"{kind}-1.* {message}|{kind}-1.*: {message}"):
        Index.load(index.folder)


def test_another_network_raises(image_folder: Path, toys: ModuleType, tmp_path: Path) -> None:
    module = toys.ToyBody()
    built = Index.build(image_folder / "class 1", tmp_path / "index", module, device="cpu")
    assert len(built) == 8
    (hits,) = built.search(built.embedder.embed(image_folder / "class 1" / "9.png"), top_k=1)
    assert hits[0].item == "9.png"
    assert built.collection is not None
    with pytest.raises(ValueError, match="an index of a module that is not stored; expected queries"):
        _ = Index.load(tmp_path / "index").embedder
    torch.manual_seed(5)
    with pytest.raises(ValueError, match=r"index: .* this module; build it again"):
        Index.load(tmp_path / "index", Embedder.load(toys.ToyBody(), device="cpu"))


def test_blocks_of_vectors_do_not_change_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    from entourage.embed.index import approximate

    points = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    queries = points[:7] + 0.1
    expected = top_cosines(queries, points, 9)
    monkeypatch.setattr(approximate, "BLOCK_ROWS", 16)
    rows, cosines = top_cosines(queries, points, 9)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_allclose(cosines, expected[1], rtol=1e-6)
    np.testing.assert_array_equal(rows[:, 0], np.argmax(queries @ points.T, axis=1))

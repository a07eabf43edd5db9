import builtins
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from entourage.embed.index.approximate import CellSearch, build_cells, top_cosines
from entourage.embed.index.build import build_index
from entourage.embed.index.vector_index import Index


@pytest.fixture
def vectors() -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(40, 16))
    values = centres[generator.integers(40, size=4000)] + 0.3 * generator.normal(size=(4000, 16))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def test_recall_of_the_chosen_probes(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    probes = build_cells(vectors, tmp_path / "cells.faiss", approximate=True)
    search = CellSearch.open(tmp_path / "cells.faiss", probes)
    assert search is not None
    assert 1 <= probes < search.index.nlist
    queries = vectors[::40]
    rows, cosines = search.search(queries, vectors, 10)
    exact, exact_cosines = top_cosines(queries, vectors, 10)
    hits = sum(len(set(one) & set(other)) for one, other in zip(rows.tolist(), exact.tolist(), strict=True))
    assert hits / rows.size > 0.95
    same = rows == exact
    np.testing.assert_allclose(cosines[same], exact_cosines[same], atol=1e-6)  # cosines are exact


def test_index_uses_the_cells(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    np.save(tmp_path / "v.npy", vectors)
    build_index(tmp_path / "v.npy", tmp_path / "index", approximate=True, progress=False)
    index = Index.load(tmp_path / "index")
    assert index.version.probes > 0
    (hits,) = index.search(vectors[5:6], top_k=3)
    assert hits[0].item == "5"
    (tmp_path / "index" / "cells-1.faiss").unlink()  # a mapped file must not be truncated
    (tmp_path / "index" / "cells-1.faiss").write_text("damaged")
    with pytest.raises(ValueError, match=r"cells-1\.faiss: .*; build the index again"):
        Index.load(tmp_path / "index").search(vectors[5:6])
    build_index(tmp_path / "v.npy", tmp_path / "index", approximate=False, progress=False)
    assert not list((tmp_path / "index").glob("cells*"))


def test_small_indices_are_exact(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    assert build_cells(vectors, tmp_path / "cells.faiss") == 0
    assert not list(tmp_path.iterdir())


def test_without_faiss_the_search_is_exact(
    vectors: NDArray[np.float32], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def no_faiss(name: str, *arguments: object, **options: object) -> object:
        if name == "faiss":
            raise ImportError(name)
        return original(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", no_faiss)
    monkeypatch.setattr("entourage.embed.index.approximate.MIN_VECTORS", 10)
    assert build_cells(vectors, tmp_path / "cells.faiss") == 0
    assert CellSearch.open(tmp_path / "cells.faiss", 3) is None
    with pytest.raises(ValueError, match=r'approximate: faiss is missing; expected `pip install "entourage\[faiss\]"`'):
        build_cells(vectors, tmp_path / "cells.faiss", approximate=True)

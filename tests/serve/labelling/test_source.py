from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.serve.conftest import groups

from entourage.serve.labelling.source import read_source, select_representatives


def test_feature_files_are_read_without_torch(source: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from entourage.serve.labelling import routes, session, source\n"
        f"assert len(source.read_source(Path({str(source)!r}), '', 'auto', 'cpu').names) == 60\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metric_cosine_scales_features(source: Path) -> None:
    items = read_source(source, "", "cosine", "cpu")
    np.testing.assert_allclose(np.linalg.norm(items.features, axis=1), 1, rtol=1e-5)
    assert (items.images, items.skipped) == (None, [])


def test_missing_files_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.npy.*; expected a feature file: \.npy, \.npz, \.csv, \.parquet"):
        read_source(tmp_path / "absent.npy", "", "auto", "cpu")


def test_representatives_come_from_all_regions() -> None:
    chosen = select_representatives(groups(300), 6)
    assert len(set(chosen)) == len(chosen) == 6
    assert {item % 3 for item in chosen} == {0, 1, 2}


def test_few_and_equal_items_are_valid() -> None:
    assert select_representatives(np.zeros((5, 2)), 3) == select_representatives(np.zeros((5, 2)), 3)
    assert sorted(select_representatives(np.arange(3.0)[:, None], 24)) == [0, 1, 2]

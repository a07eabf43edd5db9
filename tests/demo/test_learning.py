from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import TSNE

from entourage.demo import learning as demo


def test_one_label_per_class_is_the_true_label_of_a_random_item() -> None:
    truth = np.repeat(np.arange(4), 5)
    y = demo.one_label_per_class(truth, seed=3)
    assert sorted(y[y >= 0]) == [0, 1, 2, 3]
    assert (y[y >= 0] == truth[y >= 0]).all()
    assert (y == demo.one_label_per_class(truth, seed=3)).all()
    assert (y != demo.one_label_per_class(truth, seed=4)).any()


def test_the_section_has_a_figure_and_a_table_in_which_the_game_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRAWS", 3)
    monkeypatch.setattr(TSNE, "fit_transform", lambda self, X: np.asarray(X[:, [10, 20]], dtype=np.float32))
    section = demo.label_section()
    picture, table = section.wide
    assert picture.figure.count("% right") == 2
    peer, game = (float(row[1].rstrip("%")) for row in table.table[1:])
    assert game > peer

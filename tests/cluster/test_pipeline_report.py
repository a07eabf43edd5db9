from __future__ import annotations

import numpy as np
import torch

from entourage.cluster import LearnedClustering
from entourage.cluster.data import Items
from entourage.cluster.pipeline import ITEMS_PER_CLUSTER, clustering_sections, count_figure, scatter_figure


def clustered(n: int = 40, columns: int = 2) -> tuple[Items, LearnedClustering]:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(n, columns)))
    model = LearnedClustering()
    model.probabilities_ = rng.dirichlet([1, 1, 1], n)
    model.labels_ = model.probabilities_.argmax(1)
    model.n_clusters_ = 3
    model.n_subsets_ = 1
    model.count_probabilities_ = np.array([0.1, 0.2, 0.6, 0.1])
    return Items("points", [f"item-{i}" for i in range(n)], values, None, [("bad.csv", "empty")]), model


def test_the_report_states_the_number_and_shows_every_cluster() -> None:
    items, model = clustered()
    overview, clusters, skipped = clustering_sections(items, model)
    assert overview.lead == "40 items in 3 clusters. The probability of this number of clusters is 60%."
    assert [row[1] for row in overview.blocks[1].table[1:]] == [str(c) for c in np.bincount(model.labels_)]
    assert overview.wide[0].figure.startswith("<svg")
    assert len(clusters.wide) == 3
    shown = {t.name for block in clusters.wide for t in block.thumbnails}
    assert shown <= set(items.names)
    assert all(len(block.thumbnails) <= ITEMS_PER_CLUSTER for block in clusters.wide)
    assert skipped.wide[0].table[1] == ("bad.csv", "empty")


def test_the_report_uses_the_singular_for_one() -> None:
    items, model = clustered()
    model.probabilities_ = np.zeros((40, 2))
    model.probabilities_[:39, 0] = model.probabilities_[39, 1] = 1
    model.labels_, model.n_clusters_ = model.probabilities_.argmax(1), 2
    assert [b.title.split(" (")[0] for b in clustering_sections(items, model)[1].wide] == [
        "Cluster 0: 39 items",
        "Cluster 1: 1 item",
    ]
    model.probabilities_, model.labels_, model.n_clusters_ = np.ones((40, 1)), np.zeros(40, dtype=np.int64), 1
    assert clustering_sections(items, model)[0].lead.startswith("40 items in 1 cluster. ")


def test_most_probable_items_come_first_and_least_probable_last() -> None:
    items, model = clustered(100)
    block = clustering_sections(items, model)[1].wide[0]
    members = np.flatnonzero(model.labels_ == 0)
    order = members[np.argsort(-model.probabilities_[members, 0], kind="stable")]
    assert block.thumbnails[0].name == items.names[order[0]]
    assert block.thumbnails[-1].name == items.names[order[-1]]
    assert "(6 most and 6 least probable ones shown)" in block.title


def test_scatter_figure_supports_any_number_of_columns() -> None:
    for columns in (1, 2, 5):
        items, model = clustered(20, columns)
        assert scatter_figure(items.values.numpy(), model.labels_).startswith("<svg")
    assert "P(k)" in count_figure(np.array([0.3, 0.7]), 2)


def test_the_report_states_the_number_of_subsets() -> None:
    items, model = clustered()
    model.n_subsets_ = 4
    overview = clustering_sections(items, model)[0]
    assert overview.lead.startswith("40 items in 3 clusters, clustered in 4 subsets. ")
    assert overview.lead.endswith(" 60%.")
    assert "the mean over 4 subsets" in overview.blocks[0].text

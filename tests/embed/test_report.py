from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.embed.data import read_images
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.report import (
    CORRECT_COLOUR,
    FAILED_QUERIES,
    N_NEIGHBORS,
    RANDOM_QUERIES,
    WRONG_COLOUR,
    EmbeddedSet,
    compute_metrics,
    embedding_sections,
    format_table,
    is_measurable,
    metrics_table,
)
from entourage.game.similarity import normalize_rows


@pytest.fixture
def embedded(image_folder: Path) -> EmbeddedSet:
    images = read_images(image_folder)
    images = images.subset([i for i, item in enumerate(images.items) if "broken" not in item])
    torch.manual_seed(0)
    return EmbeddedSet(images, normalize_rows(torch.randn(len(images), 6)))


def test_recall_is_limited_to_the_number_of_neighbours(embedded: EmbeddedSet) -> None:
    expected = retrieval_metrics(embedded.embeddings, embedded.images.labels, (1, 2, 4, 8))
    assert compute_metrics(embedded) == expected
    few = embedded.subset(np.array([0, 1, 8, 9]))
    assert set(compute_metrics(few, nmi=False)) == {"recall@1", "recall@2", "r_precision", "map@r"}


def test_subset_selects_images_and_embeddings(embedded: EmbeddedSet) -> None:
    rows = np.array([5, 2, 60])
    part = embedded.subset(rows)
    assert part.images.items == [embedded.images.items[row] for row in rows]
    assert torch.equal(part.embeddings, embedded.embeddings[rows])


@pytest.mark.parametrize(("labels", "answer"), [([0, 0], False), ([0, 1], False), ([0, 0, 1], True), ([], False)])
def test_is_measurable(labels: list[int], answer: bool) -> None:
    assert is_measurable(np.array(labels, dtype=np.int64)) is answer


def test_table_is_aligned_with_a_column_per_metric() -> None:
    table = metrics_table({"test": {"recall@1": 0.4567, "nmi": 1.0}, "all": {"recall@1": 0.5}})
    assert table == [("", "recall@1", "nmi"), ("test", "45.7", "100.0"), ("all", "50.0", "")]
    lines = format_table(table).splitlines()
    assert lines[1] == "test      45.7  100.0"
    assert len({len(line) for line in lines}) == 1


def test_report_contains_metrics_curves_queries_map_and_skipped_images(embedded: EmbeddedSet) -> None:
    curves = {"training": [0.1, 0.2], "test": [0.1, 0.15]}
    metrics, training, queries, map_, skipped = embedding_sections(
        embedded, {"test": compute_metrics(embedded)}, curves, [("a.png", "no image")]
    )
    assert metrics.wide[0].table[1][0] == "test"
    assert "training" in training.blocks[0].figure
    figure = queries.wide[0].figure
    rows = RANDOM_QUERIES + FAILED_QUERIES  # with random embeddings most queries fail
    assert figure.count("<image") == rows * (N_NEIGHBORS + 1)
    assert figure.count(CORRECT_COLOUR) + figure.count(WRONG_COLOUR) == rows * N_NEIGHBORS
    first_neighbours = [row.split("<rect")[1] for row in figure.split("query: ")[1:]]
    assert all(WRONG_COLOUR in neighbour for neighbour in first_neighbours[RANDOM_QUERIES:])
    assert map_.wide[0].figure.count("<circle") == 64
    assert skipped.wide[0].table[1] == ("a.png", "no image")
    assert len(embedding_sections(embedded, {})) == 3

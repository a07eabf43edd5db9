from __future__ import annotations

from benchmarks.embed_metrics import sample_embeddings

from entourage.embed import retrieval_metrics


def test_nearest_neighbours_are_nearly_always_of_the_class_and_others_are_not() -> None:
    found = retrieval_metrics(*sample_embeddings(6000, 512), (1,), nmi=False)
    assert found["recall@1"] > 0.9
    assert found["r_precision"] < 0.9

from __future__ import annotations

import re

from benchmarks.cluster_speed import points, tables


def test_costs_are_printed_with_clusters_and_subsets() -> None:
    assert re.fullmatch(r"\d+\.\d\d s, 12 clusters in 1 subset", points(240, None, "cpu"))
    assert re.fullmatch(r"\d+\.\d\d s, \d+ clusters in [2-9] subsets", points(240, 120, "cpu"))


def test_costs_of_tables_have_memory_and_hdbscan() -> None:
    assert re.fullmatch(r"\d+\.\d s, \d+\.\d GiB, \d+ clusters; HDBSCAN \d+\.\d s", tables(300))

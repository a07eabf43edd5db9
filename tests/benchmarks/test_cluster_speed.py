from __future__ import annotations

import re

from benchmarks.cluster_speed import points


def test_a_cost_is_told_with_what_was_done_for_it() -> None:
    assert re.fullmatch(r"\d+\.\d\d s, 12 clusters in 1 look", points(240, None, "cpu"))
    assert re.fullmatch(r"\d+\.\d\d s, \d+ clusters in [2-9] looks", points(240, 120, "cpu"))

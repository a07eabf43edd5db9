from __future__ import annotations

import multiprocessing

from benchmarks.label_busy import OURS, PEER, busy_cores, run


def test_each_method_labels_a_mixture_in_a_process_of_its_own() -> None:
    for method in (OURS, PEER):
        result = run(method, 400, {"OMP_NUM_THREADS": "1"})
        assert result["seconds"] > 0
        assert result["accuracy"] > 0.3  # ten classes


def test_busy_processes_end_with_the_block() -> None:
    with busy_cores(1):
        assert len(multiprocessing.active_children()) == 1
    assert not multiprocessing.active_children()

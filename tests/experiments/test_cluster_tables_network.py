from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from entourage.cluster.tables.scorer import load_scorer
from entourage.cluster.tables.training import ExampleStream, make_example
from experiments import cluster_tables_network as module


def test_the_network_and_its_log_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(ExampleStream):
        def __post_init__(self) -> None:
            made = [make_example([9, i], self.options) for i in range(10)]
            self.examples = [one for one in made if one is not None]

        def collect(self) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "ExampleStream", Stream)
    out = tmp_path / "network.safetensors"
    words = ["--minutes", "0.02", "--device", "cpu", "--n-max", "30", "--first", "4", "--validation", "4"]
    monkeypatch.setattr(sys, "argv", ["network", *words, "--out", str(out)])
    module.main()
    assert load_scorer(out).options.width == 128
    scores = json.loads(out.with_suffix(".jsonl").read_text().splitlines()[-1])
    assert {"loss", "choice_ari", "count_k", "best_ari"} <= set(scores)

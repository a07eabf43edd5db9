from __future__ import annotations

from pathlib import Path

import pytest

from entourage.cluster.shipped import shipped_networks
from entourage.detect.detector import shipped_detectors
from experiments import cards


def test_every_model_that_ships_has_a_card_with_what_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in cards.WEIGHTS.glob("*.safetensors"):
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.setattr(cards, "WEIGHTS", tmp_path)
    cards.main()
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert {"## cluster-points", "## detect"} <= set(text.splitlines())
    assert text.count("| date | 20") == len(shipped_networks()) + len(shipped_detectors())
    assert "mAP" in text
    assert "NMI" in text

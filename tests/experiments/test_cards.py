from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest

from entourage.cluster.models.network import shipped_networks
from entourage.detect.detector import shipped_detectors
from experiments import cards, cluster_points


def test_every_model_that_ships_has_a_card_with_what_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"WEIGHTS": tmp_path / "weights", "HANDWRITING": tmp_path / "handwriting" / "src" / "package"}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        for file in getattr(cards, name).glob("*.safetensors"):
            (folder / file.name).symlink_to(file)
        monkeypatch.setattr(cards, name, folder)
    cards.main()
    written = (folders["WEIGHTS"], folders["HANDWRITING"].parents[1])
    text, handwritten = ((folder / "README.md").read_text(encoding="utf-8") for folder in written)
    assert {"## cluster-points", "## detect"} <= set(text.splitlines())
    assert text.count("| date | 20") == len(shipped_networks()) + len(shipped_detectors().keys() - {"muscima"})
    printed = text.partition("## detect\n")[2]
    assert "| licence | Apache-2.0 |" in printed
    assert "clean, v1: mAP" in printed
    assert "MUSCIMA++" not in printed
    assert "CC BY-NC-SA" in handwritten
    assert "MUSCIMA++, own: mAP" in handwritten
    assert "clean" not in handwritten
    assert "NMI" in text


def test_the_command_that_made_the_network_for_points_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = cards.COMMANDS["cluster-points"].split()
    assert command[:3] == ["python", "-m", "experiments.cluster_points"]
    given: list[Namespace] = []

    def stop(name: str, options: Namespace) -> None:
        given.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_points, "open_ledger", stop)
    monkeypatch.setattr(sys, "argv", command[2:])
    with pytest.raises(KeyboardInterrupt):
        cluster_points.main()
    assert cards.WEIGHTS.parents[2] / given[0].ship == cards.WEIGHTS / "cluster-points.safetensors"
    assert f"`{' '.join(command)}`" in (cards.WEIGHTS / "README.md").read_text(encoding="utf-8")

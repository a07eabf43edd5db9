from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from entourage.cluster import ClusterNetwork, ModelOptions, save_network
from entourage.cluster.pipeline import run_source

TINY = ModelOptions(k_max=4, width=8, depth=1, heads=2, code=4, frequencies=2)


def write_network(path: Path, shape: tuple[int, ...], **notes: str) -> str:
    torch.manual_seed(0)
    network = ClusterNetwork(shape, TINY)
    network.notes = notes
    save_network(network, path)
    return str(path)


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "points.csv", rng.normal(size=(30, 2)), delimiter=",", header="x,y", comments="")
    model = write_network(tmp_path / "n.safetensors", (2,), items="points")
    return {
        "source": tmp_path / "points.csv",
        "out": tmp_path / "out",
        "model": model,
        "device": "cpu",
        "progress": False,
    }


def test_run_source_writes_clusters_and_probabilities_of_points(arguments: dict[str, Any]) -> None:
    summary = run_source(**arguments)
    with (arguments["out"] / "clusters.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    k = summary["clusters"]
    assert list(rows[0]) == ["item", "cluster", "probability", *(f"p{c}" for c in range(k))]
    assert [row["item"] for row in rows] == [str(n) for n in range(30)]
    for row in rows:
        p = [float(row[f"p{c}"]) for c in range(k)]
        assert sum(p) == pytest.approx(1, abs=1e-3)
        assert int(row["cluster"]) == int(np.argmax(p))
        assert float(row["probability"]) == max(p)
    assert np.bincount([int(row["cluster"]) for row in rows]).tolist() == summary["sizes"]
    assert summary == json.loads((arguments["out"] / "summary.json").read_text())
    assert sum(summary["count_probabilities"]) == pytest.approx(1, abs=1e-4)
    assert sorted(p.name for p in arguments["out"].iterdir()) == ["clusters.csv", "report.html", "summary.json"]


@pytest.mark.filterwarnings("ignore:3 clusters were requested")
def test_run_source_accepts_n_clusters_and_set_size(arguments: dict[str, Any]) -> None:
    assert run_source(**arguments, n_clusters=3, set_size=12)["clusters"] <= 3


@pytest.mark.extra("audio", "images")
def test_the_network_determines_whether_images_or_sounds_are_read(arguments: dict[str, Any], tmp_path: Path) -> None:
    import soundfile

    folder = tmp_path / "things"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for n in range(3):
        Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(folder / f"{n}.png")
        soundfile.write(folder / f"{n}.wav", 0.1 * rng.normal(size=30000), 16000)
    (folder / "broken.png").write_bytes(b"no image")
    images = write_network(tmp_path / "i.safetensors", (3, 128, 128), items="images")
    summary = run_source(**{**arguments, "source": folder, "model": images})
    assert (summary["items"], [one["item"] for one in summary["skipped"]]) == (3, ["broken.png"])
    assert "data:image/jpeg" in (arguments["out"] / "report.html").read_text()
    sounds = write_network(tmp_path / "s.safetensors", (1, 128, 128), items="sounds")
    assert run_source(**{**arguments, "source": folder, "model": sounds})["items"] == 3
    assert (arguments["out"] / "report.html").read_text().count("<audio") == 3


@pytest.mark.extra("images")
def test_the_backbone_of_a_network_is_used(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(3):
        Image.new("RGB", (32, 32), (80 * n, 0, 0)).save(folder / f"{n}.png")
    model = write_network(tmp_path / "b.safetensors", (1280,), items="images", backbone="efficientnet-lite0")
    assert run_source(**{**arguments, "source": folder, "model": model})["items"] == 3


def test_file_names_need_not_be_utf8(arguments: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for n, name in enumerate((b"a.png", b"caf\xe9.png")):
        Image.new("RGB", (8, 8), (80 * n, 0, 0)).save(folder / os.fsdecode(name))
    model = write_network(tmp_path / "i.safetensors", (3, 128, 128), items="images")
    assert run_source(**{**arguments, "source": folder, "model": model})["items"] == 2
    with (arguments["out"] / "clusters.csv").open(newline="", encoding="utf-8") as stream:
        assert [row["item"] for row in csv.DictReader(stream)] == ["a.png", r"caf\udce9.png"]
    assert r"caf\udce9.png" in (arguments["out"] / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n0,1\n", "contains one item; expected two or more"),
        ("x,y\n0,1\nnan,2\n", "expected finite numbers"),
        ("x,y,z\n0,1,2\n3,4,5\n", "3 columns of numbers; expected 2"),
    ],
)
def test_invalid_tables_raise_and_nothing_is_written(arguments: dict[str, Any], text: str, message: str) -> None:
    arguments["source"].write_text(text)
    with pytest.raises(ValueError, match=message):
        run_source(**arguments)
    assert not arguments["out"].exists()


def test_inputs_are_never_overwritten(arguments: dict[str, Any]) -> None:
    arguments["out"].mkdir()
    target = arguments["out"] / "clusters.csv"
    target.write_bytes(arguments["source"].read_bytes())
    with pytest.raises(ValueError, match="; expected another output path"):
        run_source(**{**arguments, "source": target})
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        run_source(**{**arguments, "out": arguments["source"]})

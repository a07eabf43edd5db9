from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.cluster import ClusterNetwork, ModelOptions, load_network, save_network

TINY = ModelOptions(k_max=4, width=8, depth=1, heads=2, code=4, frequencies=2)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_network(ClusterNetwork((2,), TINY), tmp_path / "n.safetensors")
    return tmp_path / "n.safetensors"


def test_points_are_clustered(tmp_path: Path, network: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    arguments = ["cluster", "run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "out"), "--model", str(network)]
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert result.exit_code == 0
    assert result.output.startswith("20 items, ")
    assert "clusters (P(k) " in result.output
    assert (tmp_path / "out" / "clusters.csv").read_text().startswith("item,cluster,probability,p0")
    known = CliRunner().invoke(app, [*arguments, "--clusters", "2", "--set-size", "8"])
    assert "P(k)" not in known.output


def test_skipped_files_are_reported_and_the_exit_code_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = tmp_path / "i.safetensors"
    save_network(ClusterNetwork((3, 128, 128), TINY), model)
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(2):
        Image.new("RGB", (20, 20), (90 * n, 0, 0)).save(folder / f"{n}.png")
    (folder / "broken.png").write_bytes(b"no image")
    arguments = [
        "cluster",
        "run",
        str(folder),
        "--out",
        str(tmp_path / "o"),
        "--model",
        str(tmp_path / "i.safetensors"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "entourage: skipped broken.png: " in result.output


def test_a_network_is_trained_and_used(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"i{n},{rng.normal() + 9 * (n % 4)},{rng.normal()}" for n in range(40)]
    (tmp_path / "t.csv").write_text("item,x,y\n" + "\n".join(rows) + "\n")
    (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % 4}" for n in range(40)) + "\n")
    out = tmp_path / "mine.safetensors"
    arguments = ["cluster", "train", str(tmp_path / "t.csv"), "--labels", str(tmp_path / "l.csv"), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--steps", "1", "--clusters", "2", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "1 steps; on unseen sets " in result.output
    assert load_network(out).shape == (2,)


def test_unknown_models_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    result = CliRunner().invoke(
        app, ["cluster", "run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "o"), "--model", "nobody"]
    )
    assert isinstance(result.exception, ValueError)
    assert "model 'nobody' is no file" in str(result.exception)

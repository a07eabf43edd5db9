from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from entourage.cli.main import app, main
from entourage.cluster import ClusterNetwork, ModelOptions, load_network, save_network

TINY = ModelOptions(k_max=4, width=8, depth=1, heads=2, code=4, frequencies=2)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_network(ClusterNetwork((2,), TINY), tmp_path / "n.safetensors")
    return tmp_path / "n.safetensors"


def test_run_clusters_points(tmp_path: Path, network: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    arguments = ["cluster", "run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "out"), "--model", str(network)]
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert result.exit_code == 0
    assert result.output.startswith("20 items, ")
    assert re.search(r"\d clusters? \(P\(k\) ", result.output)
    assert (tmp_path / "out" / "clusters.csv").read_text().startswith("item,cluster,probability,p0")
    in_subsets = CliRunner().invoke(app, [*arguments, "--set-size", "8"])
    assert ", mean over 4 subsets): " in in_subsets.output
    fixed = CliRunner().invoke(app, [*arguments, "--n-clusters", "2", "--set-size", "8"])
    assert "P(k)" not in fixed.output
    single = CliRunner().invoke(app, [*arguments, "--n-clusters", "1"])
    assert single.output.startswith("20 items, 1 cluster: ")


@pytest.mark.filterwarnings("ignore:6 clusters were requested")
def test_max_clusters_may_exceed_that_of_the_training(tmp_path: Path, network: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    arguments = ["cluster", "run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "out"), "--model", str(network)]
    assert CliRunner().invoke(app, [*arguments, "--max-clusters", "9"]).exit_code == 0
    assert len(json.loads((tmp_path / "out" / "summary.json").read_text())["count_probabilities"]) == 9
    assert CliRunner().invoke(app, [*arguments, "--n-clusters", "6"]).exit_code == 0
    rejected = CliRunner().invoke(app, [*arguments, "--n-clusters", "25"])
    assert re.search(r"25 clusters .*expected 1 to 20", str(rejected.exception))


def test_skipped_files_are_reported_with_exit_code_1(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = tmp_path / "i.safetensors"
    save_network(ClusterNetwork((3, 128, 128), TINY), model)
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(2):
        Image.new("RGB", (20, 20), (90 * n, 0, 0)).save(folder / f"{n}.png")
    (folder / "broken.png").write_bytes(b"no image")
    result = CliRunner().invoke(
        app, ["cluster", "run", str(folder), "--out", str(tmp_path / "o"), "--model", str(model)]
    )
    assert result.exit_code == 1
    assert "entourage: skipped broken.png: " in result.output


@pytest.mark.extra("train")
def test_train_writes_a_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"i{n},{rng.normal() + 9 * (n % 4)},{rng.normal()}" for n in range(40)]
    (tmp_path / "t.csv").write_text("item,x,y\n" + "\n".join(rows) + "\n")
    (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % 4}" for n in range(40)) + "\n")
    out = tmp_path / "mine.safetensors"
    arguments = ["cluster", "train", str(tmp_path / "t.csv"), "--labels", str(tmp_path / "l.csv"), "--out", str(out)]
    (tmp_path / "options.toml").write_text("steps = 9\nk_max = 2\n")  # the command line has other steps
    options = ["--config", str(tmp_path / "options.toml"), "--steps", "1", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    assert "1 step; on unseen classes " in result.output
    assert load_network(out).shape == (2,)


def test_from_and_preset_exclude_each_other(tmp_path: Path, network: Path) -> None:
    words = ["cluster", "train", "points", "--out", str(tmp_path / "new.safetensors"), "--from", str(network)]
    result = CliRunner().invoke(app, [*words, "--preset", "thesis"])
    assert "--from and --preset: both given; expected one" in str(result.exception)
    assert not (tmp_path / "new.safetensors").exists()


def test_unknown_models_raise(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    result = CliRunner().invoke(
        app, ["cluster", "run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "o"), "--model", "unknown"]
    )
    assert isinstance(result.exception, ValueError)
    assert "model 'unknown'" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n0,1\n", "expected two or more"),
        ("x,y\n0,1\nnan,2\n", "expected finite numbers"),
        ("x,y,z\n0,1,2\n3,4,5\n", "3 columns"),
        ("x,y\n0,one\n1,two\n", "is not numeric"),
        (None, "no such file"),
    ],
)
def test_invalid_input_is_one_line_with_exit_code_2(
    tmp_path: Path,
    network: Path,
    text: str | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, out = tmp_path / "points.csv", tmp_path / "out"
    if text is not None:
        source.write_text(text)
    words = ["entourage", "cluster", "run", str(source), "--out", str(out), "--model", str(network)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("entourage: ")
    assert stderr.count("\n") == 1
    assert message in stderr
    assert not out.exists()


@pytest.mark.parametrize("kind", ["image", "sound"])
@pytest.mark.extra("audio", "images")
def test_folders_of_broken_files_raise(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = tmp_path / "things", tmp_path / "n.safetensors"
    folder.mkdir()
    for name in ("a.png", "a.wav"):
        (folder / name).write_bytes(b"broken")
    save_network(ClusterNetwork((3 if kind == "image" else 1, 128, 128), TINY), model)
    words = ["entourage", "cluster", "run", str(folder), "--out", str(tmp_path / "out"), "--model", str(model)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "; expected at least one" in capsys.readouterr().err

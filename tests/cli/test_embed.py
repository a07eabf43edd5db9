"""The command line of `embed`, on a few small images and with the smallest network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from entourage.cli.main import app

OPTIONS = 'backbone = "efficientnet-lite0"\nrecipe.size = 32\nepochs = 7\ndevice = "cpu"\nnmi = false\n'


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["embed", *map(str, arguments)])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "images"
    generator = np.random.default_rng(0)
    for name, colour in (
        ("red", (220, 30, 30)),
        ("blue", (30, 30, 220)),
        ("green", (30, 200, 30)),
        ("grey", (90,) * 3),
    ):
        (folder / name).mkdir(parents=True)
        for n in range(4):
            pixels = generator.integers(-25, 25, (32, 32, 3)) + np.array(colour)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{name}{n}.png")
    return folder


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    out = images.parent / "run"
    (images.parent / "options.toml").write_text(OPTIONS)
    options = ["--config", images.parent / "options.toml", "--epochs", 1, "--learning-rate", 1e-5]
    result = call("train", images, "--out", out, *options, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert f"trained on 8 images: {out / 'report.html'}" in result.output
    assert "validation, before the training" in result.output
    return out


def test_options_reach_the_run(run: Path) -> None:
    recipe = json.loads((run / "config.json").read_text())["recipe"]
    assert (recipe["size"], recipe["seed"], recipe["loss"]) == (32, 3, "group")
    assert [(stage["epochs"], stage["learning_rate"]) for stage in recipe["stages"]] == [(1, 1e-5), (1, 1e-5)]
    assert [stage["only_head"] for stage in recipe["stages"]] == [True, False]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["epochs"] == 2  # the requested epoch, and the epoch that trains only the head
    assert "nmi" not in summary["metrics"]["training"]


def test_trials_choose_the_recipe(images: Path, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text(OPTIONS)
    options = ["--config", tmp_path / "options.toml", "--epochs", 1]
    result = call("train", images, "--out", tmp_path / "run", *options, "--trials", 2)
    assert result.exit_code == 0, result.output
    assert "best of 2 trials: Recall@1 " in result.output
    assert "trained on 16 images" in result.output  # none is held out in the end


def test_eval_writes_a_report(run: Path, images: Path) -> None:
    result = call("eval", run, images, "--device", "cpu", "--no-nmi")
    assert result.exit_code == 0, result.output
    assert f"16 images of 4 classes: {run / 'eval' / 'report.html'}" in result.output
    assert "recall@1" in result.output


def test_search_prints_the_nearest_images(run: Path, images: Path, tmp_path: Path) -> None:
    result = call("search", run, images, "red0.png", "--top-k", 2, "--out", tmp_path / "found.html", "--device", "cpu")
    assert result.exit_code == 0, result.output
    query, first, second, where = result.output.splitlines()
    assert query == "red0.png"
    assert first.split()[2:] in [["red", f"red/red{n}.png"] for n in (1, 2, 3)]
    assert float(first.split()[1]) >= float(second.split()[1])
    assert where == f"picture: {tmp_path / 'found.html'}"


def test_broken_images_are_skipped_with_exit_code_1(run: Path, images: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("red", "blue"):
        shutil.copytree(images / name, data / name)
    (data / "red" / "broken.png").write_bytes(b"no image")
    for arguments in (("eval", run, data, "--out", tmp_path / "out"), ("search", run, data, "red0.png")):
        result = call(*arguments, "--device", "cpu")
        assert result.exit_code == 1, result.output
        assert "entourage: skipped red/broken.png: not an image" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere", "--out", "out"), "expected a folder of images"),
        (("train", "one", "--out", "out"), "1 class"),
        (("train", "one", "--out", "out", "--loss", "hope"), "loss is 'hope'; expected"),
        (("eval", "no run", "one"), "config.json"),
        (("search", "no run", "one", "a.png"), "config.json"),
    ],
)
def test_invalid_input_raises_in_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(images / "red", "one/red")
    result = call(*arguments)
    assert isinstance(result.exception, ValueError)  # `main` makes it one line and exit code 2
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not Path("out").exists()


@pytest.fixture(scope="module")
def index(images: Path) -> Path:
    out = images.parent / "index"
    result = call("index", images, "--out", out, "--model", "efficientnet-lite0", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert result.output == f"16 items: 16 embedded, 0 reused, 0 removed: {out}\n"
    return out


def test_index_is_updated(images: Path, index: Path) -> None:
    arguments = ("index", images, "--out", index, "--model", "efficientnet-lite0", "--device", "cpu")
    update = json.loads(call(*arguments, "--json").stdout)
    assert (update["n"], update["embedded"], update["reused"], update["index"]) == (16, 0, 16, str(index))


def test_search_of_an_index(images: Path, index: Path, tmp_path: Path) -> None:
    query = images / "red" / "red1.png"
    result = call(
        "search", index, query, "blue0.png", "--top-k", 3, "--out", tmp_path / "f.html", "--csv", tmp_path / "f.csv"
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == str(query)
    assert lines[4] == "blue0.png"
    assert all("red/red" in line for line in lines[1:4])
    assert lines[-2:] == [f"picture: {tmp_path / 'f.html'}", f"table: {tmp_path / 'f.csv'}"]
    rows = json.loads(call("search", index, query, "--top-k", 3, "--json").stdout)["hits"]
    assert [row["item"] for row in rows] == [line.split("  ")[-1] for line in lines[1:4]]
    assert json.loads(call("search", index, query, "--threshold", 1, "--json").stdout) == {"hits": []}


def test_duplicates_of_an_index(images: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(images, tmp_path / "data"))
    shutil.copy(data / "red" / "red1.png", data / "copy.png")
    call("index", data, "--out", tmp_path / "index", "--model", "efficientnet-lite0", "--device", "cpu")
    result = call("duplicates", tmp_path / "index", "--threshold", 0.99, "--out", tmp_path / "f.html")
    assert result.exit_code == 0, result.output
    assert result.output == f"1.000  copy.png  red/red1.png\n1 group of 2 items: {tmp_path / 'f.html'}\n"
    groups = json.loads(call("duplicates", tmp_path / "index", "--threshold", 0.99, "--json").stdout)["groups"]
    assert groups == [["copy.png", "red/red1.png"]]


def test_export_of_an_index(index: Path, tmp_path: Path) -> None:
    result = call("export", index, "--out", tmp_path / "v.npy")
    assert result.exit_code == 0, result.output
    assert result.output == f"16 vectors: {tmp_path / 'v.npy'}, {tmp_path / 'v.csv'}\n"
    assert np.load(tmp_path / "v.npy").shape == (16, 1280)


def test_invalid_arguments_of_indices(images: Path, run: Path, index: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (("index", tmp_path / "none", "--out", tmp_path / "i"), "does not exist; expected a folder of images"),
        (("index", images, "--out", index, "--device", "cpu"), "the embeddings of another network"),
        (("search", tmp_path, "x"), "contains no current.json; expected an index"),
        (("search", run, images), "a run needs data and a query; expected RUN DATA QUERY..."),
        (("export", index, "--out", tmp_path / "v.txt"), "unknown suffix '.txt'"),
        (("duplicates", tmp_path), "contains no current.json"),
    ):
        result = call(*arguments)
        assert result.exit_code != 0
        assert message in f"{result.output}{result.exception}", arguments

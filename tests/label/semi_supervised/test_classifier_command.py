import io
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from entourage.label.semi_supervised import ImageClassifier, Predictions
from entourage.label.semi_supervised.classifier import predict_images, write_predictions


@pytest.fixture
def saved(toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A classifier of bright and dark images."""
    path = "entourage.label.semi_supervised.classifier.load_backbone"
    monkeypatch.setattr(path, lambda name, device, frozen=True, pretrained=True: toys.backbone())
    network = toys.network(classes=2)
    with torch.no_grad():
        network.body.layers[0].weight.abs_()
        network.head.weight[1] = 1.0
        network.head.bias[1] = -1.0
    ImageClassifier(network.eval(), "toy", ["dark", "bright"], toys.preprocessing()).save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (9, 9), "black").save(folder / "night.png")
    Image.new("RGB", (9, 9), "white").save(folder / "deep" / "day.png")
    (folder / "broken.png").write_bytes(b"")
    return folder


def test_files_and_all_images_below_folders_are_classified(saved: Path, folder: Path) -> None:
    paths, predictions = predict_images(saved, [folder / "night.png", folder], device="cpu", progress=False)
    assert sorted(paths[1:]) == sorted([folder / "broken.png", folder / "deep" / "day.png", folder / "night.png"])
    assert [path for path, _ in predictions.failures] == [folder / "broken.png"]
    named = dict(zip((paths[index] for index in predictions.indices), predictions.labels, strict=True))
    assert named == {folder / "night.png": "dark", folder / "deep" / "day.png": "bright"}


def test_invalid_paths_raise(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty .*; expected files named \.bmp"):
        predict_images(saved, [tmp_path / "empty"], device="cpu")
    with pytest.raises(ValueError, match=f"cannot read {tmp_path / 'nothing'}"):
        predict_images(tmp_path / "nothing", [], device="cpu")


def test_only_unreadable_images_raise(saved: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^images: .*broken\.png: .*; expected at least one"):
        predict_images(saved, [folder / "broken.png"], device="cpu", progress=False)


def test_a_missing_file_raises_only_if_all_are_missing(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, night = folder / "gone.png", folder / "night.png"
    predictions = predict_images(saved, [gone, night], device="cpu", progress=False)[1]
    assert (predictions.failures, predictions.labels) == ([(gone, "no such file")], ["dark"])
    monkeypatch.setattr(ImageClassifier, "load", lambda path: pytest.fail("the classifier was loaded"))
    for missing in ([gone], [folder / "nothere", gone]):
        with pytest.raises(ValueError, match=f"^{missing[0]}: .*; expected image files"):
            predict_images(saved, missing, device="cpu")


def test_output_over_an_input_raises_before_any_work(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageClassifier, "load", lambda path: pytest.fail("the classifier was loaded"))
    before = saved.read_bytes()
    table = saved.rename(saved.with_suffix(".csv"))  # with a valid suffix
    with pytest.raises(ValueError, match=r"saved\.csv: .*; expected another output path"):
        predict_images(table, [folder], out=folder / ".." / table.name, device="cpu")
    table.rename(saved)
    for out in (saved, folder / "deep" / ".." / "night.png", folder):
        with pytest.raises(ValueError, match=f"{out.name}: not a valid output file; expected .* ends in .csv"):
            predict_images(saved, [folder], out=out, device="cpu")
    with pytest.raises(ValueError, match="is a file; expected a folder to write to"):
        predict_images(saved, [folder], out=saved / "table.csv", device="cpu")
    assert saved.read_bytes() == before


def test_the_table_has_item_label_and_confidence(tmp_path: Path) -> None:
    paths = [Path("a,b.png"), Path("broken.png"), Path("c.png")]
    probabilities = np.array([[0.75, 0.25], [0.1, 0.9]], dtype=np.float32)
    predictions = Predictions(["dark", "bright"], probabilities, [0, 2], [(Path("broken.png"), "empty")])
    expected = 'item,label,confidence\n"a,b.png",dark,0.7500\nc.png,bright,0.9000\n'
    stream = io.StringIO()
    write_predictions(stream, paths, predictions)
    assert stream.getvalue() == expected
    write_predictions(tmp_path / "deep" / "table.csv", paths, predictions)
    assert (tmp_path / "deep" / "table.csv").read_bytes().decode() == expected


@pytest.mark.parametrize(("encoding", "written"), [("utf-8", r"né caf\udce9.png"), ("ascii", r"n\xe9 caf\udce9.png")])
def test_characters_outside_the_encoding_are_escaped(tmp_path: Path, encoding: str, written: str) -> None:
    paths = [Path("né " + os.fsdecode(b"caf\xe9.png"))]
    predictions = Predictions(["dark"], np.ones((1, 1), dtype=np.float32), [0], [])
    with (tmp_path / "printed.csv").open("w", newline="", encoding=encoding) as stream:  # errors="strict"
        write_predictions(stream, paths, predictions)
    assert (tmp_path / "printed.csv").read_bytes().decode() == f"item,label,confidence\n{written},dark,1.0000\n"


def test_files_and_streams_use_the_same_escapes(tmp_path: Path) -> None:
    paths = [Path(os.fsdecode(b"caf\xe9.png"))]
    predictions = Predictions(["dark"], np.ones((1, 1), dtype=np.float32), [0], [])
    stream = io.StringIO()
    write_predictions(stream, paths, predictions)
    write_predictions(tmp_path / "table.csv", paths, predictions)
    assert (tmp_path / "table.csv").read_bytes().decode() == stream.getvalue()
    assert r"caf\udce9.png" in stream.getvalue()


def test_no_predictions_write_a_table_without_rows() -> None:
    stream = io.StringIO()
    write_predictions(stream, [], Predictions([], np.empty((0, 2), dtype=np.float32), [], []))
    assert stream.getvalue() == "item,label,confidence\n"

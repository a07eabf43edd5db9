"""The Python examples of CONTRIBUTING.md run."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))
EXAMPLES = {title: re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) for title, text in SECTIONS.items()}


@pytest.mark.parametrize("title", ["Add a graph baseline", "Add a head to the detector"])
@pytest.mark.extra("music")
def test_example_runs(title: str) -> None:
    (example,) = EXAMPLES[title]
    assert "assert " in example
    exec(example, {})


def test_a_loss_that_is_added_is_available_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_metric_learning")
    from entourage.embed.losses import pml

    (example,) = EXAMPLES["Add a loss of embeddings"]
    namespace = dict(vars(pml))
    exec(example, namespace)  # the example is an edit of the table in this module
    monkeypatch.setattr(pml, "_FACTORIES", pml._FACTORIES | namespace["_FACTORIES"])
    monkeypatch.setattr(pml, "BASELINE_LOSSES", tuple(pml._FACTORIES))  # made from the table at import
    assert isinstance(pml.baseline_loss("circle", 4, 8), pml.PMLLoss)


@pytest.mark.extra("music")
def test_the_example_format_writes_a_line_per_symbol(tmp_path: Path) -> None:
    namespace: dict[str, object] = {}
    (example,) = EXAMPLES["Add an output format of annotated pages"]
    exec(example, namespace)
    row = {"page": "a", "label_id": 25, "x0": 10, "y0": 20, "x1": 30, "y1": 60, "width": 100, "height": 200}
    write = namespace["write_yolo"]
    assert callable(write)
    write(tmp_path / "symbols.txt", [[row, row | {"label_id": 0}]])
    assert (tmp_path / "symbols.txt").read_text() == "a 25 0.200000 0.200000 0.200000 0.200000\n"


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(r"`((?:src|tests)/[\w/]+\.py)`", PAGE)) - {"tests/engrave/dataset/test_formats_yolo.py"}),
)
def test_named_files_exist(path: str) -> None:
    assert (Path(__file__).parents[1] / path).is_file()

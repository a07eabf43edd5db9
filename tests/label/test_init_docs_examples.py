"""The Python examples of docs/label.md run."""

import re
from pathlib import Path

import numpy as np
import pytest

import entourage.label.semi_supervised
from entourage.label.semi_supervised.views import ViewOptions

PAGE = (Path(__file__).parents[2] / "docs" / "label.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
IMPORTS = [line for block in BLOCKS for line in block.splitlines() if line.startswith(("from ", "import "))]


@pytest.mark.parametrize("line", IMPORTS)
def test_imports_on_the_page_work(line: str) -> None:
    exec(line, {})


def test_options_on_the_page_are_exported() -> None:
    named = set(re.findall(r"\b([A-Z]\w+Options)\(", PAGE))
    assert {"AugmentOptions", "MethodOptions", ViewOptions.__name__} <= named
    assert named - {"TrainingOptions", "ViewOptions"} <= set(entourage.label.semi_supervised.__all__)


@pytest.mark.extra("images", "train")
def test_the_training_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [block for block in BLOCKS if "METHODS" in block]
    short = example.replace("min_steps=96", "min_steps=2").replace("epochs=1", "epochs=1, max_steps=2")
    short = short.replace("pixels[300:]", "pixels[300:340]").replace("y[300:]", "y[300:340]")
    namespace: dict[str, object] = {}
    exec(short, namespace)
    assert 0 <= float(capsys.readouterr().out) <= 1
    found = namespace["found"]
    assert isinstance(found, list)
    assert len(found) == 40
    assert set(found) <= set(np.arange(10).astype(str))

"""Missing extras are named in one line, and the table of extras agrees with pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from entourage.extras import EXTRAS, MissingExtraError, extra_imports, missing_packages

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GROUPS = {"all", "bench", "browser", "dev", "docs", "test"}  # of other extras, or for work on the project


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()  # type: ignore[index]


def test_the_extras_are_those_of_the_project() -> None:
    assert set(PROJECT["optional-dependencies"]) - GROUPS == set(EXTRAS)
    distributions = packages_distributions()
    for extra, packages in EXTRAS.items():
        declared = {normalized(requirement) for requirement in PROJECT["optional-dependencies"][extra]}
        installed = [package for package in packages if package in distributions]
        assert len(declared) <= len(packages)
        assert all(normalized(name) in declared for package in installed for name in distributions[package][:1]), extra


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)  # makes the import fail
    with pytest.raises(MissingExtraError) as caught, extra_imports():
        import cv2  # noqa: F401
    assert str(caught.value) == "cv2 is not installed; expected: pip install 'entourage[music]'"
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(("extra", "named"), [(None, "music"), ("parquet", "parquet")])
def test_a_package_of_two_extras_names_the_requested_one(
    extra: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=rf"'entourage\[{named}\]'"), extra_imports(extra):
        import pyarrow  # noqa: F401


def test_other_missing_packages_pass_unchanged() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), extra_imports():
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "test", ("json", "no_such_package"))
    assert missing_packages("test") == ["no_such_package"]


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from entourage import Detector", "music"),
        ("from entourage.engrave import find_fonts", "music"),
        ("from entourage.backbones.registry import load_backbone; load_backbone(device='cpu')", "images"),
        ("from entourage.data.media import read_audio; read_audio(folder + '/sound.wav', 16000)", "audio"),
        ("from entourage.data.features import read_features; read_features(folder + '/empty.parquet')", "parquet"),
    ],
)
def test_interfaces_name_the_extra_that_they_require(code: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "sound.wav").touch()
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS[extra]!r})); folder = {str(tmp_path)!r}"
    result = subprocess.run(
        [sys.executable, "-c", f"{blocked}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stderr.splitlines()[-1].endswith(f"is not installed; expected: pip install 'entourage[{extra}]'")


@pytest.mark.parametrize("words", ["detect run x.png", "engrave run x.mei", "read x.png", "engrave stats x", "demo"])
def test_commands_name_the_extra_that_they_require(words: str) -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS['music']!r}))"
    code = f"{blocked}; sys.argv[1:] = {words.split()!r}; import entourage.__main__"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.endswith(" is not installed; expected: pip install 'entourage[music]'\n")


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        ("from entourage import GraphTransduction, LearnedClustering, GroupLoss", "accelerate"),
        ("import entourage.label.pipeline, entourage.embed.index.search, entourage.cluster.pipeline", "accelerate"),
        ("import entourage.training", "accelerate"),
    ],
)
def test_heavy_packages_are_imported_where_they_are_used(code: str, unneeded: str) -> None:
    code = f"import sys\n{code}\nprint({unneeded!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.extra("music")
def test_engraving_needs_no_torch(tmp_path: Path) -> None:
    command = ["engrave", "run", "--compose", "1", "--out", str(tmp_path / "pages"), "--formats", "coco", "--workers"]
    code = f"import sys; sys.modules['torch'] = None; sys.argv[1:] = {[*command, '1']!r}; import entourage.__main__"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stderr) == (0, "")

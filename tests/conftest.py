"""Tests run with any set of extras: those that require a missing extra are not collected, or skipped."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
import torch

from entourage.extras import missing_packages

os.environ.setdefault("ENTOURAGE_PROGRESS_SECONDS", "0")  # tests compare the lines on standard error
torch.set_num_threads(1)  # tests run in parallel, and the order of sums depends on the number of threads

# Extras of folders and files; `@pytest.mark.extra("name", ...)` states those of a single test. All other tests pass
# with the dependencies of tables and arrays alone, which `make test-core` checks.
EXTRAS = {
    "backbones/test_efficientnet_lite.py": ["images"],
    "backbones/test_efficientnet_lite_depthwise.py": ["images"],
    "backbones/test_finetuning.py": ["images"],
    "backbones/test_finetuning_split.py": ["images"],
    "backbones/test_registry.py": ["images"],
    "benchmarks/test_busy_commands.py": ["music"],
    "benchmarks/test_detect_speed.py": ["music"],
    "benchmarks/test_embed_duplicates.py": ["faiss", "images", "train"],
    "benchmarks/test_fuzz_readers.py": ["music", "parquet"],
    "benchmarks/test_kill_commands.py": ["images", "music", "train"],
    "benchmarks/test_read_speed.py": ["music"],
    "cli/test_config.py": ["music", "train"],
    "cli/test_detect.py": ["music"],
    "cli/test_embed.py": ["images", "train"],
    "cli/test_engrave.py": ["music"],
    "cli/test_read.py": ["music"],
    "cli/test_serve.py": ["serve"],
    "cluster/test_task_training.py": ["train"],
    "cluster/test_train.py": ["audio", "images", "train"],
    "data/datasets/test_music.py": ["music"],
    "data/datasets/test_music_deepscores.py": ["music"],
    "data/test_media_audio.py": ["audio"],
    "demo": ["images", "music", "train"],
    "detect": ["music", "train"],
    "docs": ["faiss", "images", "losses", "music", "onnx", "parquet", "serve", "train"],
    "embed/index": ["faiss", "images", "onnx", "train"],
    "embed/losses/test_group_loss_objectives.py": ["losses"],
    "embed/losses/test_pml.py": ["losses"],
    "embed/losses/test_pml_head.py": ["losses"],
    "embed/test_pipeline.py": ["images", "train"],
    "embed/test_pipeline_evaluate.py": ["images", "train"],
    "embed/training": ["images", "train"],
    "engrave": ["music"],
    "experiments": ["audio", "images", "losses", "music", "train"],
    "io/test_safe_formats_parquet.py": ["parquet"],
    "io/test_safe_formats_xml.py": ["music"],
    "label/semi_supervised": ["images", "train"],
    "label/test_data.py": ["images"],
    "label/test_pipeline_train.py": ["images", "train"],
    "read": ["music"],
    "serve": ["images", "serve", "train"],
    "training": ["train"],
}
_FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "extra(*names): skip the test unless these extras are installed")


def pytest_report_header() -> str:
    missing = sorted({name for names in EXTRAS.values() for name in names if missing_packages(name)})
    return f"tests of these extras are left out: {', '.join(missing)}" if missing else "all extras of the tests"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    names = EXTRAS.get(collection_path.relative_to(_FOLDER).as_posix(), []) if collection_path != _FOLDER else []
    return True if any(map(missing_packages, names)) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("extra"):
            if missing := [name for name in mark.args if missing_packages(name)]:
                item.add_marker(pytest.mark.skip(reason=f"requires the extra {missing[0]}"))


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """The tasks that tests train in this process and in child processes."""
    from tests.training import worker as worker_module

    return worker_module

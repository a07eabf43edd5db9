"""Train, validation and test: split by work, never by page.

The last step: from what finished tasks have left, the annotations of the whole data set.
"""

from __future__ import annotations

import csv
import hashlib
import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from entourage import __version__
from entourage.compute import derive_seed
from entourage.engrave.dataset.formats import SCHEMA, write_coco, write_deepscores
from entourage.engrave.dataset.patches import PATCHES_FILE, write_patches
from entourage.engrave.dataset.state import RULES_VERSION, read_record, record_path, remove_stale_files
from entourage.engrave.dataset.worker import Outcome
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.io.files import atomic_path, write_json

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_FRACTIONS = {"val": 0.1, "test": 0.1}


def split_works(works: Iterable[str], seed: int) -> dict[str, Split]:
    """The split of each work: a tenth for validation, a tenth for test, the others for training.

    Which works those are is random but depends on nothing but the names and the seed. From three works on, no split is
    empty.

    Args:
        works: what tells works apart; names may repeat.
        seed: of the draw.
    """
    shuffled = sorted(set(works), key=lambda work: (derive_seed(seed, "split", work), work))
    sizes = {
        name: max(round(fraction * len(shuffled)), 1 if len(shuffled) > 2 else 0)
        for name, fraction in _FRACTIONS.items()
    }
    split: dict[str, Split] = dict.fromkeys(shuffled, "train")
    split |= dict.fromkeys(shuffled[: sizes["val"]], "val")
    split |= dict.fromkeys(shuffled[sizes["val"] : sizes["val"] + sizes["test"]], "test")
    return split


TABLE_FILE = "symbols.parquet"
_PACKAGES = ("verovio", "lxml", "numpy", "opencv-python-headless", "pyarrow", "fonttools", "matplotlib")
_JSON_FILES = tuple(f"{kind}_{split}.json" for kind in ("deepscores", "coco") for split in SPLITS)
_OUTPUT_FILES = (TABLE_FILE, PATCHES_FILE, "pages.csv", "failures.csv", *_JSON_FILES)
_DESCRIPTION = "Engraved by entourage, in the manner of DeepScores"


def assemble(options: EngraveOptions, tasks: list[EngraveTask], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Writes tables, annotation files, patches, failures and the manifest, and removes what earlier runs have left.

    Args:
        options: what was asked for.
        tasks: all tasks, in order.
        outcomes: what became of each, by name.

    Returns:
        The manifest.
    """
    records = {task.name: read_record(record_path(options.out, task.name)) for task in tasks}
    done = {name: meta for name, meta in records.items() if meta is not None and not outcomes[name].failure}
    split = split_works((meta["work"] for meta in done.values()), options.seed)
    _write_table(options.out, list(done), {name: split[meta["work"]] for name, meta in done.items()})
    _write_splits(options.out, done, split)
    for name in SPLITS:
        members = [task for task, meta in done.items() if split[meta["work"]] == name]
        if "deepscoresv2" in options.formats:
            write_deepscores(
                options.out / f"deepscores_{name}.json", _pages(options.out, members), f"{_DESCRIPTION}: {name}"
            )
        if "coco" in options.formats:
            write_coco(options.out / f"coco_{name}.json", _pages(options.out, members), f"{_DESCRIPTION}: {name}")
    if "patches" in options.formats:
        write_patches(options.out, options.seed)
    _write_failures(options.out, tasks, outcomes)
    inputs = {task.file.path for task in tasks if task.file is not None}
    remove_stale_files(options.out, done, {place for meta in done.values() for place in meta["files"]}, inputs)
    return _write_manifest(options, tasks, done)


def _write_table(out: Path, names: list[str], split: dict[str, Split]) -> None:
    schema = SCHEMA.append(pa.field("split", pa.string()))
    with atomic_path(out / TABLE_FILE) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for name in names:
            table = pq.read_table(record_path(out, name)).replace_schema_metadata(None)
            writer.write_table(table.append_column(schema.field("split"), pa.array([split[name]] * len(table))))


def _pages(out: Path, names: list[str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each page of these tasks."""
    for name in names:
        rows = pq.read_table(record_path(out, name)).to_pylist()
        first = np.flatnonzero([i == 0 or a["page"] != rows[i - 1]["page"] for i, a in enumerate(rows)])
        for start, end in zip(first, [*first[1:], len(rows)], strict=True):
            yield rows[start:end]


def _write_splits(out: Path, done: dict[str, dict[str, Any]], split: dict[str, Split]) -> None:
    with atomic_path(out / "pages.csv") as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["page", "split", "work", "source", "font", "number", "unlabelled"])
        for meta in done.values():
            for page in meta["pages"]:
                details = [page["number"], " ".join(page["unlabelled"])]
                writer.writerow(
                    [page["page"], split[meta["work"]], meta["work"], meta["source"], meta["font"], *details]
                )


def _write_failures(out: Path, tasks: list[EngraveTask], outcomes: dict[str, Outcome]) -> None:
    failed = [(task, outcomes[task.name].failure) for task in tasks if outcomes[task.name].failure]
    with atomic_path(out / "failures.csv") as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["score", "source", "reason"])
        rows = [(task.name, str(task.file or "composed"), reason) for task, reason in failed]
        writer.writerows(sorted(rows))


def _write_manifest(
    options: EngraveOptions, tasks: list[EngraveTask], done: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Versions, options and checksums. Nothing in it depends on when, where or by how many workers it was made."""
    files = {path: digest for meta in done.values() for path, digest in meta["files"].items()}
    for name in _OUTPUT_FILES:
        if (options.out / name).is_file():
            with (options.out / name).open("rb") as stream:
                files[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    packages = _PACKAGES + (("lilypond",) if options.engine == "lilypond" else ())
    versions = {"entourage": __version__, "rules": str(RULES_VERSION), "python": platform.python_version()}
    manifest = {
        "versions": versions | {package: version(package) for package in packages},
        "options": options.config(),
        "counts": {
            "scores": len({(task.file, task.index) for task in tasks if task.name in done}),  # each in several fonts
            "pages": sum(len(meta["pages"]) for meta in done.values()),
            "symbols": pq.read_metadata(options.out / TABLE_FILE).num_rows,
            "failures": len(tasks) - len(done),
        },
        "sources": {name: meta["source_sha256"] for name, meta in done.items()},
        "files": dict(sorted(files.items())),
    }
    write_json(options.out / "manifest.json", manifest, indent=1)
    return manifest

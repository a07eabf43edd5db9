"""Assembly of the data set from the records of finished tasks: splits, tables, annotation files and manifest."""

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
from entourage.engrave.dataset.state import RULES_VERSION, TaskRecord, open_records
from entourage.engrave.dataset.worker import Outcome
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.io.files import atomic_path, write_json
from entourage.runs.records import RecordStore

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_FRACTION = 0.1  # of the works in the split val, and in test


def split_works(works: Iterable[str], seed: int) -> dict[str, Split]:
    """Assign works to splits at random: a tenth to validation, a tenth to test, the others to training.

    All pages of a work are in one split. With three works or more, no split is empty.

    Args:
        works: names of the works; duplicates are ignored.
        seed: random seed; the assignment depends on the seed and the names only.

    Returns:
        The split of each work, by its name.
    """
    shuffled = sorted(set(works), key=lambda work: (derive_seed(seed, "split", work), work))
    size = max(round(_FRACTION * len(shuffled)), 1 if len(shuffled) > 2 else 0)
    split: dict[str, Split] = dict.fromkeys(shuffled, "train")
    split |= dict.fromkeys(shuffled[:size], "val")
    split |= dict.fromkeys(shuffled[size : 2 * size], "test")
    return split


TABLE_FILE = "symbols.parquet"
_PACKAGES = ("verovio", "lxml", "numpy", "opencv-python-headless", "pyarrow", "fonttools", "matplotlib")
_JSON_FILES = tuple(f"{kind}_{split}.json" for kind in ("deepscores", "coco") for split in SPLITS)
_OUTPUT_FILES = (TABLE_FILE, PATCHES_FILE, "pages.csv", "failures.csv", *_JSON_FILES)
_DESCRIPTION = "Engraved by entourage, in the manner of DeepScores"


def assemble(options: EngraveOptions, tasks: list[EngraveTask], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Write tables, annotation files, patches, failures and the manifest; delete files that belong to no task.

    Args:
        options: options of the run.
        tasks: all tasks, in order.
        outcomes: outcomes by name of the task.

    Returns:
        The manifest.
    """
    store = open_records(options.out)
    records = {task.name: store.get(task.name) for task in tasks}
    done = {name: record.meta for name, record in records.items() if record and not outcomes[name].failure}
    split = split_works((meta["work"] for meta in done.values()), options.seed)
    _write_table(options.out, store, {name: split[meta["work"]] for name, meta in done.items()})
    _write_splits(options.out, done, split)
    for name in SPLITS:
        members = [task for task, meta in done.items() if split[meta["work"]] == name]
        description = f"{_DESCRIPTION}: {name}"
        if "deepscoresv2" in options.formats:
            write_deepscores(options.out / f"deepscores_{name}.json", _pages(store, members), description)
        if "coco" in options.formats:
            write_coco(options.out / f"coco_{name}.json", _pages(store, members), description)
    if "patches" in options.formats:
        write_patches(options.out, options.seed)
    _write_failures(options.out, tasks, outcomes)
    store.remove_stale(done, protected={task.file.path for task in tasks if task.file is not None})
    return _write_manifest(options, tasks, done)


def _write_table(out: Path, store: RecordStore[TaskRecord], split: dict[str, Split]) -> None:
    schema = SCHEMA.append(pa.field("split", pa.string()))
    with atomic_path(out / TABLE_FILE) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for name, part in split.items():
            table = pq.read_table(store.path(name)).replace_schema_metadata(None)
            writer.write_table(table.append_column(schema.field("split"), pa.array([part] * len(table))))


def _pages(store: RecordStore[TaskRecord], names: list[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of one page after another, of all tasks with these names."""
    for name in names:
        rows = pq.read_table(store.path(name)).to_pylist()
        first = np.flatnonzero([i == 0 or a["page"] != rows[i - 1]["page"] for i, a in enumerate(rows)])
        for start, end in zip(first, [*first[1:], len(rows)], strict=True):
            yield rows[start:end]


def _write_splits(out: Path, done: dict[str, dict[str, Any]], split: dict[str, Split]) -> None:
    with atomic_path(out / "pages.csv") as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["page", "split", "work", "source", "font", "number", "unlabelled"])
        for meta in done.values():
            work = meta["work"]
            for page in meta["pages"]:
                details = [page["number"], " ".join(page["unlabelled"])]
                writer.writerow([page["page"], split[work], work, meta["source"], meta["font"], *details])


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
    """Write versions, options, counts and checksums; nothing depends on time, machine or number of workers."""
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
            "scores": len({(task.file, task.index) for task in tasks if task.name in done}),  # in any number of fonts
            "pages": sum(len(meta["pages"]) for meta in done.values()),
            "symbols": pq.read_metadata(options.out / TABLE_FILE).num_rows,
            "failures": len(tasks) - len(done),
        },
        "sources": {name: meta["source_sha256"] for name, meta in done.items()},
        "files": dict(sorted(files.items())),
    }
    write_json(options.out / "manifest.json", manifest, indent=1)
    return manifest

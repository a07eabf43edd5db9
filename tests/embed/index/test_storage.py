"""Files of an index: versions, columns, and what a version leaves in the folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from entourage.embed.index.storage import (
    Items,
    States,
    Version,
    publish,
    read_items,
    read_states,
    read_vectors_file,
    read_version,
    write_columns,
)

VERSION = Version(1, 2, 3, "efficientnet-lite0", "photos", skipped=[("a.png", "empty")])


def write(folder: Path, version: Version) -> None:
    """Write the files of a version with its number in all vectors."""
    np.save(version.vectors_file(folder), np.full((version.n, version.dim), version.number, dtype=np.float32))
    write_columns(version.items_file(folder), Items(["b.png", "\udce9.png"], ["x", "y"]))
    write_columns(version.states_file(folder), States(["1", "2"], ["aa", "bb"]))


def test_a_published_version_is_read_again(tmp_path: Path) -> None:
    assert read_version(tmp_path) is None
    write(tmp_path, VERSION)
    publish(tmp_path, VERSION)
    assert read_version(tmp_path) == VERSION
    assert read_items(tmp_path, VERSION) == Items(["b.png", "\udce9.png"], ["x", "y"])
    assert read_states(tmp_path, VERSION) == States(["1", "2"], ["aa", "bb"])
    assert read_vectors_file(VERSION.vectors_file(tmp_path), (2, 3)).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_the_next_version_removes_the_files_of_the_former_one(tmp_path: Path) -> None:
    following = replace(VERSION, number=2)
    for version in (VERSION, following):
        write(tmp_path, version)
        publish(tmp_path, version)
    assert read_version(tmp_path) == following
    assert not VERSION.vectors_file(tmp_path).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["current.json"]
        + [file(tmp_path).name for file in (following.vectors_file, following.items_file, following.states_file)]
    )


def test_vectors_that_are_mapped_stay_when_a_version_is_removed(tmp_path: Path) -> None:
    write(tmp_path, VERSION)
    mapped = read_vectors_file(VERSION.vectors_file(tmp_path), (2, 3))
    publish(tmp_path, replace(VERSION, number=2))
    assert mapped.sum() == 6


def test_damaged_files_raise_a_message_of_one_line_or_are_read_again(tmp_path: Path) -> None:
    write(tmp_path, VERSION)
    with pytest.raises(ValueError, match=r"vectors.*; expected float32 \(3, 3\)"):
        read_vectors_file(VERSION.vectors_file(tmp_path), (3, 3))
    longer = replace(VERSION, n=3)
    with pytest.raises(ValueError, match=r"items-1\.json: .*; build the index again"):
        read_items(tmp_path, longer)
    assert read_states(tmp_path, longer) is None
    (tmp_path / "current.json").write_text('{"number": 1}')
    with pytest.raises(ValueError, match=r"current\.json: .*; expected an index"):
        read_version(tmp_path)

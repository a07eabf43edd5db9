from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.fuzz_readers import READERS, attempt, fuzz, make_input, mutate, valid_file

INPUTS = 20  # of each reader


@pytest.mark.parametrize("reader", sorted(READERS))
def test_mutated_files_are_read_or_refused_in_one_line(tmp_path: Path, reader: str) -> None:
    suffix, content = valid_file(reader)
    path = tmp_path / f"input{suffix}"
    path.write_bytes(content)
    assert attempt(READERS[reader], path) is None
    for number in range(INPUTS):
        path.write_bytes(make_input(reader, number, 1)[1])
        assert attempt(READERS[reader], path) in (None, "refused"), number


def test_inputs_are_reproducible_and_differ() -> None:
    assert make_input("csv", 3, 0) == make_input("csv", 3, 0)
    assert len({make_input("csv", number, 0)[1] for number in range(20)}) > 15
    assert mutate(b"", np.random.default_rng(0)) == b""


def test_kinds_of_failures_are_distinguished(tmp_path: Path) -> None:
    def fail(error: Exception) -> object:
        raise error

    path = tmp_path / "input.csv"
    assert attempt(lambda path: None, path) is None
    assert attempt(lambda path: fail(ValueError(f"{path}: damaged")), path) == "refused"
    assert "without a path" in str(attempt(lambda path: fail(ValueError("without a path")), path))
    assert "message" in str(attempt(lambda path: fail(ValueError(f"{path}: two\nlines")), path))
    assert attempt(lambda path: fail(KeyError("x")), path) == "KeyError: 'x'"


def test_readers_run_in_processes_with_limits() -> None:
    result = fuzz("npy", range(10), 0, 60.0, 1024.0)
    assert (result.failures, result.read + result.refused) == ([], 10)
    slow = fuzz("npy", range(2), 0, 0.0, 1024.0)
    assert [failure.number for failure in slow.failures if "longer than 0 s" in failure.problem]

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from entourage.validation import check_count, is_integer, is_number, validate_counts


def test_is_number_rejects_strings_and_booleans() -> None:
    assert all(is_number(value) for value in (1, 0.5, np.float32(2), float("nan")))
    assert not any(is_number(value) for value in ("1", True, None, 1j))


def test_is_integer_accepts_python_and_numpy_integers() -> None:
    assert all(is_integer(value) for value in (-1, 0, np.int64(3), np.uint8(3)))
    assert not any(is_integer(value) for value in (1.0, np.float64(1), True, np.True_, "1", None))


def test_check_count_returns_python_integers() -> None:
    for value in (3, np.int64(3), np.uint8(3)):
        assert type(check_count("rounds", value, 1)) is int
        assert check_count("rounds", value, 1) == 3
    with pytest.raises(ValueError, match=r"^rounds is np.int64\(0\); expected a whole number of 1 or more$"):
        check_count("rounds", np.int64(0), 1)


def test_validate_counts_converts_fields_of_frozen_dataclasses() -> None:
    @dataclass(frozen=True)
    class Options:
        rounds: int
        seed: int = 0

    options = Options(np.int16(2))  # type: ignore[arg-type]
    validate_counts(options, 0, "rounds", "seed")
    assert (type(options.rounds), options) == (int, Options(2))
    with pytest.raises(ValueError, match=r"^seed is 0; expected a whole number of 1 or more$"):
        validate_counts(options, 1, "rounds", "seed")


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_check_count_raises_with_the_name(value: object) -> None:
    check_count("rounds", 1, 1)
    with pytest.raises(ValueError, match=r"^rounds is .*; expected a whole number of 1 or more, or 'auto'$"):
        check_count("rounds", value, 1, ", or 'auto'")


@pytest.mark.parametrize("package", ["detect", "embed", "label"])
def test_importing_a_package_does_not_load_accelerate(package: str) -> None:
    code = f"import sys, entourage.{package}; sys.exit('accelerate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from entourage.data.checks import check_count, is_number


def test_numbers_are_told_from_texts_and_truth() -> None:
    assert all(is_number(value) for value in (1, 0.5, np.float32(2), float("nan")))
    assert not any(is_number(value) for value in ("1", True, None, 1j))


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_counts_that_are_none_are_refused_by_name(value: object) -> None:
    check_count("rounds", 1, 1)
    with pytest.raises(ValueError, match=r"^rounds is .*; expected a whole number of 1 or more, or 'auto'$"):
        check_count("rounds", value, 1, ", or 'auto'")


@pytest.mark.parametrize("room", ["detect", "embed", "label"])
def test_options_of_a_room_do_not_load_the_training_loop(room: str) -> None:
    code = f"import sys, entourage.{room}; sys.exit('accelerate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

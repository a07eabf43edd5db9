from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.read.small import melody, page_of

from entourage.read.reader import ScoreReader


@pytest.fixture(scope="session")
def reader() -> ScoreReader:
    """The reader with the detector of the package."""
    return ScoreReader.load(device="cpu")


@pytest.fixture(scope="session")
def melody_page() -> NDArray[np.uint8]:
    """The page of `small.melody`."""
    return page_of(melody())

"""Parquet files that people may have damaged. Not imported with the room: pyarrow takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


@contextmanager
def undamaged(path: Path, maker: str) -> Iterator[None]:
    """Says in one line of a table that is read within the block if it is damaged.

    Args:
        path: the file.
        maker: the command that writes such tables.

    Raises:
        ValueError: it is no Parquet at all, or another table.
    """
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise ValueError(f"{path} is damaged, or another table; expected what `{maker}` wrote") from error

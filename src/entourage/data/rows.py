"""Small CSV files written by people: rows with their line numbers, so that an error can point at the line."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rows:
    """A CSV file in memory.

    Attributes:
        path: where it came from, for messages.
        header: the names of the columns, without surrounding blanks.
        lines: (line number, cells) of every row that is not blank; short rows are filled up with "".
    """

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]]

    def column(self, name: str) -> int:
        """Position of a column, whatever its case.

        Raises:
            ValueError: there is no such column, or there are two.
        """
        places = [place for place, title in enumerate(self.header) if title.lower() == name]
        if len(places) != 1:
            problem = f"no column {name!r}" if not places else f"{len(places)} columns {name!r}"
            raise ValueError(f"{self.path}: line 1 has {problem}; found: {', '.join(self.header)}")
        return places[0]


def read_rows(path: str | Path) -> Rows:
    """Read a CSV file (UTF-8, with or without a byte order mark).

    Raises:
        ValueError: the file is missing, is not UTF-8 text, is not CSV, or has no header line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(_not_blank(stream))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); expected a CSV file") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file: {error}") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    if not lines:
        raise ValueError(f"{path}: empty; expected a header line and rows")
    header = [title.strip() for title in lines[0][1]]
    filled = [(line, cells + [""] * (len(header) - len(cells))) for line, cells in lines[1:]]
    return Rows(path, header, filled)


def _not_blank(stream: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(stream)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells

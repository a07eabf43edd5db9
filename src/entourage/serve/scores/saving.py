"""Corrected scores as files: MusicXML, MIDI and JSON, and the corrected boxes as training data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from entourage.detect.preprocessing.reading import read_page
from entourage.io.files import atomic_path, write_json
from entourage.read.formats.midi import write_midi
from entourage.read.formats.musicxml import write_musicxml
from entourage.read.formats.score_json import score_to_dict
from entourage.serve.scans import Scans
from entourage.serve.scores.bars import Music, Symbol
from entourage.serve.scores.session import OpenScore
from entourage.symbols import EXTENDED_IDS

CORRECTED = "corrected"  # folder of the results, below the output folder of `entourage read`
TRAINING = "training"  # folder of the training data in it
_CHANGES = {"gClefChange": "clefG", "fClefChange": "clefF"}
_CHANGES |= {"cClefAltoChange": "clefCAlto", "cClefTenorChange": "clefCTenor"}
_LINE = 0.13  # thickness of a staff line in distances of lines; boxes of staves contain the lines
_MIN_SCORE = 0.3  # detections below are no symbols, unless the user says so


def save_score(opened: OpenScore) -> list[Path]:
    """Write a corrected score to the folder `corrected`; every file is complete or absent.

    Args:
        opened: the score.

    Returns:
        The files, without those of the training data: NAME.json, and NAME.musicxml and NAME.mid if there are notes.
    """
    folder, name = opened.place.folder / CORRECTED, opened.place.file_name
    folder.mkdir(exist_ok=True)
    with opened.snapshot() as music:
        score = music.score
        values = score_to_dict(score)
        for page, symbols in zip(values["pages"], music.symbols, strict=True):
            page["symbols"] = [_symbol(symbol) for symbol in symbols if symbol is not None]
        files = [folder / f"{name}.json"]
        write_json(files[0], values, indent=None)
        if score.n_notes:
            files += [folder / f"{name}.musicxml", folder / f"{name}.mid"]
            write_musicxml(score, files[1])
            write_midi(score, files[2])
        write_training_data(music, opened.scans, folder / TRAINING, name)
    return files


def _symbol(symbol: Symbol) -> dict[str, Any]:
    return {"class": symbol.name, "score": symbol.score, "box": list(symbol.box)}


def write_training_data(music: Music, scans: Scans, folder: Path, name: str) -> Path | None:
    """Write the scans of a score and their symbols as a data set for `entourage detect train`.

    Args:
        music: the music with its symbols.
        scans: the scans; pages that may not be shown are left out.
        folder: folder to write to; tables of other scores in it stay.
        name: name of the score.

    Returns:
        The table, in the format of DeepScoresV2; None without pages.
    """
    images: list[dict[str, Any]] = []
    annotations: dict[str, dict[str, Any]] = {}
    for page, symbols in enumerate(music.symbols):
        if scans.sources[page] is None or not any(bars for bars in _staves(music, page)):
            continue
        file = f"{name}-{page + 1}.png"
        width, height = _write_image(folder / "images" / file, str(scans.sources[page]))
        rows = [(category, symbol.box) for symbol in symbols if symbol and (category := _category(symbol))]
        rows += [(EXTENDED_IDS["staff"], box) for box in _staves(music, page)]
        numbers = [str(len(annotations) + k) for k in range(len(rows))]
        annotations |= {n: _annotation(row, len(images)) for n, row in zip(numbers, rows, strict=True)}
        images.append({"id": len(images), "filename": file, "width": width, "height": height, "ann_ids": numbers})
    if not images:
        return None
    categories = {str(n): {"name": name, "annotation_set": "deepscores"} for name, n in EXTENDED_IDS.items()}
    path = folder / f"deepscores_{name}_train.json"
    table = {"annotation_sets": ["deepscores"], "categories": categories, "images": images, "annotations": annotations}
    write_json(path, table, indent=None)
    return path


def _category(symbol: Symbol) -> int | None:
    """Return the number of the class of a symbol; None if it is uncertain, or a staff."""
    if symbol.score < _MIN_SCORE or symbol.name == "staff":
        return None
    return EXTENDED_IDS.get(_CHANGES.get(symbol.name, symbol.name))


def _annotation(row: tuple[int, tuple[float, ...]], image: int) -> dict[str, Any]:
    category, (x0, y0, x1, y1) = row
    return {
        "a_bbox": [x0, y0, x1, y1],
        "o_bbox": [x1, y1, x1, y0, x0, y0, x0, y1],
        "cat_id": [str(category), None],
        "area": round((x1 - x0) * (y1 - y0), 2),
        "img_id": str(image),
        "comments": "",
    }


def _staves(music: Music, page: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield the box of each staff of a page: those of its measures together, or the detected one without music."""
    if not music.parts:
        yield from _detected_staves(music, page)
        return
    groups: dict[tuple[int, int, int], list[tuple[float, float, float, float]]] = {}
    for part, row in enumerate(music.bars):
        for bar in row:
            if bar.measure.page == page + 1:
                for staff, box in enumerate(bar.measure.boxes):
                    groups.setdefault((part, bar.measure.system, staff), []).append(box)
    for boxes in groups.values():
        sides = np.array(boxes)
        top, bottom = float(np.median(sides[:, 1])), float(np.median(sides[:, 3]))
        margin = _LINE / 2 * (bottom - top) / 4
        yield (float(sides[:, 0].min()), top - margin, float(sides[:, 2].max()), bottom + margin)


def _detected_staves(music: Music, page: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield the detected staves of a page, all with the height that the distance of its lines gives."""
    height = (4 + _LINE) * music.interline(page + 1)
    for symbol in music.symbols[page]:
        if symbol is not None and symbol.name == "staff" and symbol.score >= _MIN_SCORE:
            x0, y0, x1, y1 = symbol.box
            yield (x0, (y0 + y1 - height) / 2, x1, (y0 + y1 + height) / 2)


def _write_image(path: Path, source: str) -> tuple[int, int]:
    image = read_page(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(cv2.imencode(".png", image)[1].tobytes())
    return image.shape[1], image.shape[0]


def list_saved(folder: Path) -> list[str]:
    """Return the names of the files that were saved, without the training data."""
    saved = folder / CORRECTED
    return sorted(entry.name for entry in os.scandir(saved) if entry.is_file()) if saved.is_dir() else []

"""The way of the data: scores are found, engraved by many workers, and assembled into a data set."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from entourage.engrave.dataset.assemble import assemble
from entourage.engrave.dataset.pool import check_address, run_tasks
from entourage.engrave.dataset.state import OUTPUT_FOLDERS, STATE
from entourage.engrave.dataset.worker import Outcome
from entourage.engrave.engines.lilypond import LilypondEngraver
from entourage.engrave.options import EngraveOptions, MusicFont, make_tasks
from entourage.engrave.scores.archives import find_scores
from entourage.io.files import atomic_path, is_unfinished, write_json
from entourage.io.progress import progress_bar, status
from entourage.runs.directory import try_lock


def engrave(options: EngraveOptions) -> dict[str, Any]:
    """Engraves everything that the job asks for; a run that was killed continues where it stopped.

    Args:
        options: what to engrave, how, and where to.

    Returns:
        The manifest, with the failures under "failed".

    Raises:
        ValueError: nothing to engrave, a source lies in the folder, the engine is not installed, no cluster answers,
            the folder holds a data set made with other options, or another run is at work on it.
        OSError: the folder cannot be written to.
    """
    fonts = options.fonts
    options = replace(options, fonts=tuple(_stored_font(font, options.out) for font in fonts))
    tasks = make_tasks(options, find_scores(options.sources, options.out) if options.sources else [])
    if options.engine == "lilypond":
        LilypondEngraver(options.page)  # says at once, rather than of every score, that it is not installed
    if options.ray:
        check_address(options.ray)
    outcomes: dict[str, Outcome] = {}
    with _locked_folder(options.out):
        _check_config(options)
        for font, stored in zip(fonts, options.fonts, strict=True):
            _copy_font(font, stored)
        with progress_bar("Engraving", len(tasks)) as advance:
            for outcome in run_tasks(options, tasks):
                outcomes[outcome.name] = outcome
                advance(1)
        with status("Writing annotations"):
            manifest = assemble(options, tasks, outcomes)
    _warn_unsubstituted(options, manifest)
    failed = {outcome.name: outcome.failure for outcome in outcomes.values() if outcome.failure}
    return manifest | {"failed": dict(sorted(failed.items()))}


def _warn_unsubstituted(options: EngraveOptions, manifest: dict[str, Any]) -> None:
    """Says of how many scores symbols were to be replaced, and could not be."""
    sources = {name for name in manifest["files"] if name.startswith("sources/")}
    n_others = sum(f"sources/{name}.mxl" not in sources for name in manifest["sources"])
    if options.substitute and n_others:
        subject = "1 score is" if n_others == 1 else f"{n_others} scores are"
        warnings.warn(f"{subject} not MusicXML, in which alone symbols are replaced", stacklevel=3)


def _stored_font(font: MusicFont, out: Path) -> MusicFont:
    """A font of the user's as it lies in the data set, where all machines of a cluster see it."""
    if font.file is None:
        return font
    return replace(font, file=out.absolute() / STATE / "fonts" / font.digest / font.file.name)


def _copy_font(font: MusicFont, stored: MusicFont) -> None:
    if font.file is not None and stored.file is not None:
        with atomic_path(stored.file) as temporary:
            shutil.copyfile(font.file, temporary)


@contextmanager
def _locked_folder(out: Path) -> Iterator[None]:
    """Makes the folder and keeps other runs out of it: each would take the other's unfinished files for leftovers."""
    state = out / STATE
    if out.exists() and not state.is_dir() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not an empty folder; expected a new one, or one that this command has begun")
    state.mkdir(parents=True, exist_ok=True)
    with try_lock(state / "run") as locked:
        if not locked:
            raise ValueError(f"another run is at work on {out}; expected to be alone")
        yield


def _check_config(options: EngraveOptions) -> None:
    """Notes the options, or checks that the folder was begun with the same ones, and tidies up after a kill."""
    path = options.out / STATE / "options.json"
    current = options.config()
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        different = sorted(name for name in current if current[name] != stored.get(name))
        if different:
            what = f"{different[0]} was {stored.get(different[0])!r} and is {current[different[0]]!r}"
            raise ValueError(
                f"{options.out} was begun with other options: {what}; expected the same, or an empty folder"
            )
        _remove_unfinished(options.out)
        return
    write_json(path, current, indent=1)


def _remove_unfinished(out: Path) -> None:
    """Removes what is not yet complete, where this command writes: other folders in there may be at work themselves."""
    paths = [
        *out.glob(".*"),
        *(out / STATE).rglob(".*"),
        *(p for name in OUTPUT_FOLDERS for p in (out / name).glob(".*")),
    ]
    for path in paths:
        if path.is_file() and is_unfinished(path):
            path.unlink()

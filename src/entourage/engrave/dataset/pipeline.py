"""Pipeline of `entourage engrave`: find scores, engrave them in parallel, and assemble the data set."""

from __future__ import annotations

import shutil
import warnings
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
from entourage.io.files import atomic_path
from entourage.io.progress import progress_bar, status
from entourage.runs.directory import RunDirectory


def engrave(options: EngraveOptions) -> dict[str, Any]:
    """Engrave scores into a data set; a killed run resumes when the call is repeated.

    Args:
        options: options of the run.

    Returns:
        The manifest, with an entry "failed" that maps the name of each failed task to the reason.

    Raises:
        ValueError: there is nothing to engrave, a source lies in the output folder, the engine is not installed, no Ray
            cluster answers, or the output folder contains other files, was started with other options or is locked by
            another process.
        OSError: the output folder cannot be written to.
    """
    fonts = options.fonts
    options = replace(options, fonts=tuple(_stored_font(font, options.out) for font in fonts))
    tasks = make_tasks(options, find_scores(options.sources, options.out) if options.sources else [])
    if options.engine == "lilypond":
        LilypondEngraver(options.page)  # reports a missing LilyPond once, not for every score
    if options.ray:
        check_address(options.ray)
    outcomes: dict[str, Outcome] = {}
    _check_folder(options.out)
    with RunDirectory(options.out, options.config(), file=f"{STATE}/options.json", folders=OUTPUT_FOLDERS) as run:
        run.commit()
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


def _check_folder(out: Path) -> None:
    if out.exists() and not (out / STATE).is_dir() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: contains other files; expected an empty folder or a data set to resume")


def _warn_unsubstituted(options: EngraveOptions, manifest: dict[str, Any]) -> None:
    """Warn about scores in which no symbols could be substituted."""
    sources = {name for name in manifest["files"] if name.startswith("sources/")}
    n_others = sum(f"sources/{name}.mxl" not in sources for name in manifest["sources"])
    if options.substitute and n_others:
        subject = "1 score is" if n_others == 1 else f"{n_others} scores are"
        warnings.warn(f"substitute: {subject} not MusicXML and stay unchanged", stacklevel=3)


def _stored_font(font: MusicFont, out: Path) -> MusicFont:
    """Return a custom font with the path of its copy in the data set, which all machines of a cluster can read."""
    if font.file is None:
        return font
    return replace(font, file=out.absolute() / STATE / "fonts" / font.digest / font.file.name)


def _copy_font(font: MusicFont, stored: MusicFont) -> None:
    if font.file is not None and stored.file is not None:
        with atomic_path(stored.file) as temporary:
            shutil.copyfile(font.file, temporary)

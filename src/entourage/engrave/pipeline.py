"""The way of the data: scores are found, engraved by many workers, and assembled into a data set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from entourage.data import atomic_path, progress_bar, status
from entourage.engrave.archives import find_scores
from entourage.engrave.assemble import assemble
from entourage.engrave.job import EngraveJob, tasks_of
from entourage.engrave.pool import run_tasks
from entourage.engrave.work import STATE, Outcome

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{16}\.\w+")  # how `atomic_path` names what is not yet complete


def engrave(job: EngraveJob) -> dict[str, Any]:
    """Engraves everything that the job asks for; a run that was killed continues where it stopped.

    Args:
        job: what to engrave, how, and where to.

    Returns:
        The manifest, with the failures under "failed".

    Raises:
        ValueError: nothing to engrave, or the folder holds a data set made with other options.
    """
    tasks = tasks_of(job, find_scores(job.sources) if job.sources else [])
    _begin(job)
    outcomes: dict[str, Outcome] = {}
    with progress_bar("Engraving", len(tasks)) as advance:
        for outcome in run_tasks(job, tasks):
            outcomes[outcome.name] = outcome
            advance(1)
    with status("Writing annotations"):
        manifest = assemble(job, tasks, outcomes)
    failed = {outcome.name: outcome.failure for outcome in outcomes.values() if outcome.failure}
    return manifest | {"failed": dict(sorted(failed.items()))}


def _begin(job: EngraveJob) -> None:
    """Makes the folder, or checks that what it holds was begun with the same options, and tidies up after a kill."""
    path = job.out / STATE / "options.json"
    options = job.decisive()
    if path.exists():
        begun = json.loads(path.read_text(encoding="utf-8"))
        differ = sorted(name for name in options if options[name] != begun.get(name))
        if differ:
            what = f"{differ[0]} was {begun.get(differ[0])!r} and is {options[differ[0]]!r}"
            raise ValueError(f"{job.out} was begun with other options: {what}; expected the same, or an empty folder")
        for leftover in job.out.rglob(".*"):
            if leftover.is_file() and _UNFINISHED.fullmatch(leftover.name):
                leftover.unlink()
        return
    if job.out.exists() and (not job.out.is_dir() or _holds_anything(job.out)):
        raise ValueError(f"{job.out} is not an empty folder; expected a new one, or one that this command has begun")
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(options, indent=1) + "\n", encoding="utf-8")


def _holds_anything(folder: Path) -> bool:
    return any(folder.iterdir())

"""Measure every command on a machine whose cores are busy with other processes: its threads against a single one.

    python -m benchmarks.busy_commands [--commands "embed index" ...] [--quiet]

One process per core computes without a pause, unless `--quiet`. Each command runs on the inputs of
`benchmarks.kill_inputs` in a new process, once with the number of threads that it chooses and once with a single one.
The ratio of the two times must not exceed 2. Times include imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.kill_inputs import CASES, Case, prepare
from benchmarks.label_busy import CHOSEN, busy_cores

LIMIT = 2.0


def run(words: list[str], folder: Path, threads: int | None = None) -> float:
    """Run a command line in a folder and return its seconds.

    Args:
        words: the words after `entourage`.
        folder: the working directory.
        threads: number of threads; None: what the command chooses.

    Raises:
        RuntimeError: the command fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    environment["ENTOURAGE_CACHE"] = str(folder / "cache")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    start = time.perf_counter()
    command = [sys.executable, "-m", "entourage", *words, "--quiet"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return time.perf_counter() - start


def measure(case: Case, inputs: Path, work: Path, threads: int | None) -> float:
    """Return the seconds of a command in a folder with nothing but its inputs."""
    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in case.inputs:
        source = inputs / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / name)
    return run(case.words, folder, threads)


def main() -> int:
    """Print both times of each command and their ratio; the exit code is 1 if a ratio exceeds the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--commands", nargs="+", choices=[case.name for case in CASES], metavar="COMMAND")
    parser.add_argument("--quiet", action="store_true", help="keep no core busy")
    arguments = parser.parse_args()
    from benchmarks.machine import machine

    cases = [case for case in CASES if arguments.commands is None or case.name in arguments.commands]
    cores = 0 if arguments.quiet else len(os.sched_getaffinity(0))
    print(machine())
    print(f"{cores} busy processes; seconds with the chosen threads and with one")
    slow = False
    with tempfile.TemporaryDirectory(prefix="busy-") as name:
        work = Path(name)
        prepare(work / "inputs", cases, run)
        with busy_cores(cores):
            for case in cases:
                chosen, single = (measure(case, work / "inputs", work, threads) for threads in (None, 1))
                slow |= chosen > LIMIT * single
                print(f"{case.name:18} {chosen:8.1f} {single:8.1f} {chosen / single:8.2f} x", flush=True)
    return int(slow)


if __name__ == "__main__":
    raise SystemExit(main())

"""Kill every command at random moments, fill its disk, take its rights away, start it twice, and compare the results.

    python -m benchmarks.kill_commands [--kills 30] [--commands "embed index" ...] [--seed 0]

Each command runs on small inputs in a folder of its own. A run that is killed is repeated until it ends; its folder
must then be equal, byte by byte except for durations, to that of an undisturbed run, without any further file.
With a full disk, a read-only file system and folders that may only be read, the command must end with exit code 2 and
one line that names a file and a remedy, and must succeed when it is repeated after the fault. If two processes start in
one folder, one of them may be rejected in one line; the result is that of a single run.

Commands run in forks of this process, so that imports take no time; a kill sends SIGKILL to all processes of the run.
The disk is a tmpfs. Where file systems cannot be mounted, a limit on the size of files replaces the full disk, and the
trial of a read-only file system is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from benchmarks.kill_inputs import CASES, Case, prepare

WAIT = 300.0  # seconds after which a run counts as hanging
FILLER = "filler"
_DURATION = rb'(\\?"(?:seconds|minutes|seconds a page|seconds a step)\\?":) [\d.e-]+'


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        code: exit code; negative for a signal.
        errors: standard error.
        seconds: time that it took.
    """

    code: int
    errors: str
    seconds: float


@dataclass
class Outcome:
    """Problems that a command showed, the number of trials, and their time."""

    trials: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Run:
    """A command that runs in a fork of this process, with `folder` as working directory.

    Args:
        words: the words of the command line after `entourage`.
        folder: the working directory; standard error is written next to it.
        before: called in the fork first.
    """

    def __init__(self, words: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> None:
        self.start = time.monotonic()
        handle, name = tempfile.mkstemp(prefix="stderr-")
        self.errors = Path(name)
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            self._work(words, folder, handle, before)
        os.close(handle)

    @staticmethod
    def _work(words: list[str], folder: Path, handle: int, before: Callable[[], None]) -> None:
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(handle, 2)
            os.environ.update(ENTOURAGE_CACHE=str(folder / "cache"), ENTOURAGE_PROGRESS_SECONDS="0")
            sys.argv = ["entourage", *words]
            before()
            from entourage.cli.main import main

            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}\n".encode())
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def kill(self, after: float) -> bool:
        """Kill the run `after` seconds after its start; return whether it was still running."""
        while time.monotonic() - self.start < after:
            if self._ended():
                return False
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        return self.wait().code < 0

    def _ended(self) -> bool:
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> Ended:
        """Wait for the end of the run; one that takes longer than `WAIT` is killed."""
        while not self._ended():
            if time.monotonic() - self.start > WAIT:
                os.killpg(self.process, signal.SIGKILL)
            time.sleep(0.005)
        seconds = time.monotonic() - self.start
        _, status = os.waitpid(self.process, 0)
        errors = self.errors.read_text(errors="replace")
        self.errors.unlink()
        return Ended(os.waitstatus_to_exitcode(status), errors, seconds)


def without_times(path: Path) -> bytes:
    """Return the content of a file with zeros in place of durations, which no two runs share."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        size = int.from_bytes(content[:8], "little")
        head = re.sub(_DURATION, rb"\1 0", content[8 : 8 + size]) if path.stem == "checkpoint" else content[: 8 + size]
        return head.rstrip() + content[8 + size :]
    if path.suffix in (".json", ".jsonl"):
        return re.sub(_DURATION, rb"\1 0", re.sub(rb'("seconds": )\{[^}]*\}', rb"\1 0", content))
    if path.name == "pages.csv":
        rows = list(csv.reader(content.decode().splitlines()))
        kept = [index for index, name in enumerate(rows[0]) if name != "seconds"]
        return "\n".join(",".join(row[index] for index in kept) for row in rows).encode()
    if path.suffix == ".html":
        return re.sub(rb"\d+\.\d+( minutes| s\b)|(?<=>)\d+\.\d\d(</td>)", rb"0\1\2", content)
    return content


def digest_tree(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder, hidden ones included; of folders the empty string."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == "cache":  # of features, which other commands share
            continue
        found[name] = hashlib.sha256(without_times(path)).hexdigest() if path.is_file() else ""
    return found


def compare(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return a line for each file that is missing, differs, or is left over."""
    lines = [f"lacks {name}" for name in expected if name not in found]
    lines += [f"leaves {name}" for name in found if name not in expected]
    return lines + [f"changes {name}" for name in expected if name in found and found[name] != expected[name]]


def check_message(ended: Ended) -> list[str]:
    """Return what is wrong with the end of a run whose folder cannot be written: its code, or its message."""
    lines = [line for line in ended.errors.splitlines() if line.startswith("entourage: ") and "note:" not in line]
    problems = [] if ended.code == 2 else [f"exit code {ended.code}, expected 2"]
    if "Traceback" in ended.errors:
        problems.append(f"traceback: {ended.errors.strip().splitlines()[-1][:200]}")
    elif len(lines) != 1:
        problems.append(f"message of {len(lines)} lines: {ended.errors.strip()[-300:]!r}")
    elif not re.fullmatch(r"entourage: (cannot write )?[\w./-]+(: | \().*; expected .+", lines[0]):
        problems.append(f"message without file or remedy: {lines[0]!r}")
    elif "[Errno" in lines[0]:
        problems.append(f"message with a number: {lines[0]!r}")
    return problems


class Trials:
    """The trials of one command.

    Args:
        case: the command.
        inputs: folder with its inputs.
        work: folder for its runs, on a disk with space.
    """

    def __init__(self, case: Case, inputs: Path, work: Path) -> None:
        self.case, self.inputs, self.work = case, inputs, work
        self.outcome = Outcome()
        self.expected: dict[str, str] = {}
        self.seconds = 0.0

    def fresh(self) -> Path:
        """Return the folder of the runs, with nothing but the inputs."""
        target = self.work / "run"
        target.mkdir(exist_ok=True)
        for path in target.iterdir():  # the folder itself may be a mounted disk
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in self.case.inputs:
            source = self.inputs / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, target / name)
        return target

    def finish(self, folder: Path, what: str) -> None:
        """Repeat the command until it ends, and compare its folder with that of an undisturbed run."""
        self.outcome.trials += 1
        ended = Run(self.case.words, folder).wait()
        if ended.code != 0:
            self.problem(what, f"the repeated run ends with {ended.code}: {ended.errors.strip()[-300:]!r}")
            return
        for line in compare(self.expected, digest_tree(folder)):
            self.problem(what, line)

    def problem(self, what: str, line: str) -> None:
        """Record that a trial showed a problem."""
        self.outcome.problems.append(f"{what}: {line}")

    def reference(self) -> bool:
        """Run the command twice without a disturbance; its files must be equal."""
        folder = self.fresh()
        first = Run(self.case.words, folder).wait()
        if first.code != 0:
            self.problem("undisturbed", f"ends with {first.code}: {first.errors.strip()[-300:]!r}")
            return False
        self.expected, self.seconds = digest_tree(folder), first.seconds
        self.finish(self.fresh(), "second run")
        return True

    def kill(self, rng: random.Random) -> None:
        """Kill a run at a random moment, and repeat it."""
        folder = self.fresh()
        moment = rng.uniform(0, self.seconds)
        Run(self.case.words, folder).kill(moment)
        self.finish(folder, f"killed after {moment:.2f} of {self.seconds:.2f} s")

    def twice(self) -> None:
        """Start two runs into one folder; one of them may be rejected."""
        folder = self.fresh()
        runs = [Run(self.case.words, folder), Run(self.case.words, folder)]
        ends = [run.wait() for run in runs]
        if all(ended.code != 0 for ended in ends):
            self.problem("started twice", f"both fail: {ends[0].errors.strip()[-200:]!r}")
        for ended in ends:
            if ended.code != 0 and "another process" not in ended.errors:
                self.problem("started twice", f"message {ended.errors.strip()[-300:]!r}")
        self.finish(folder, "started twice")

    def full_disk(self, rng: random.Random) -> None:
        """Fill the disk but for a part of what the command writes."""
        size = sum(path.stat().st_size for path in (self.work / "run").rglob("*") if path.is_file())
        with disk(self.work / "run", 2 * size + 8_000_000) as mounted:
            if not mounted:
                self._limited_files(rng)
                return
            folder = self.fresh()
            used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            space = rng.randrange(0, max(8192, (size - used) // 2))
            filler = folder / FILLER
            with contextlib.suppress(OSError), filler.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, max(1, shutil.disk_usage(folder).free - space))
            self._rejected(folder, f"{space} bytes of disk")
            filler.unlink()
            self.finish(folder, f"after {space} bytes of disk")

    def _limited_files(self, rng: random.Random) -> None:
        folder, limit = self.fresh(), rng.randrange(0, 4096)
        self._rejected(
            folder, f"files of {limit} bytes", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        )
        self.finish(folder, f"after files of {limit} bytes")

    def read_only(self) -> None:
        """Run in a read-only file system."""
        with disk(self.work / "run", 400_000_000) as mounted:
            if mounted:
                folder = self.fresh()
                remount(folder, "ro")
                self._rejected(folder, "read-only")
                remount(folder, "rw")
                self.finish(folder, "after read-only")

    def no_rights(self) -> None:
        """Run in folders that this user may only read."""
        folder = self.fresh()
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        self._rejected(folder, "without rights", drop_override)
        for path in folders:
            path.chmod(0o755)
        self.finish(folder, "after a run without rights")

    def _rejected(self, folder: Path, what: str, before: Callable[[], None] = lambda: None) -> None:
        """Run the command where it cannot write; one that has nothing to write may end well."""
        ended = Run(self.case.words, folder, before).wait()
        if ended.code != 0:
            for line in check_message(ended):
                self.problem(what, line)


def drop_override() -> None:
    """Give up the right of root to write where permissions forbid it; other users have none."""
    if os.geteuid() == 0:
        head = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this thread
        sets = (ctypes.c_uint32 * 6)()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.capget(head, sets) != 0:
            raise OSError(ctypes.get_errno(), "capget")
        for index in (0, 1):  # effective and permitted rights; 1 is CAP_DAC_OVERRIDE
            sets[index] &= ~(1 << 1)
        if libc.capset(head, sets) != 0:
            raise OSError(ctypes.get_errno(), "capset")


@contextlib.contextmanager
def disk(folder: Path, size: int) -> Iterator[bool]:
    """Mount a disk of a size at a folder; yield whether file systems can be mounted here."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def remount(folder: Path, mode: str) -> None:
    """Make a mounted disk read-only ("ro") or writable ("rw")."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True, capture_output=True)


def run_to_the_end(words: list[str], folder: Path) -> None:
    """Run a command that makes an input of others."""
    ended = Run(words, folder).wait()
    if ended.code != 0:
        raise RuntimeError(f"{' '.join(words)}: {ended.errors.strip()}")


def examine(case: Case, work: Path, kills: int, seed: int) -> Outcome:
    """Run all trials of a command: two undisturbed runs, kills, two runs at once, and three faults."""
    start, rng = time.monotonic(), random.Random(f"{seed} {case.name}")
    own = work / re.sub(r"\W+", "-", case.name)
    own.mkdir()
    trials = Trials(case, work / "inputs", own)
    if trials.reference():
        for _ in range(kills):
            trials.kill(rng)
        trials.twice()
        trials.full_disk(rng)
        trials.read_only()
        trials.no_rights()
    shutil.rmtree(own)
    trials.outcome.seconds = time.monotonic() - start
    return trials.outcome


PRELOADED = (
    "entourage.cli.main",  # first: it sets how threads wait
    "torch",
    "accelerate",
    "faster_coco_eval",
    "lxml.etree",
    "matplotlib.pyplot",
    "pandas",
    "pyarrow.parquet",
    "safetensors.torch",
    "sklearn.cluster",
    "verovio",
)


def load() -> None:
    """Import what the commands need, once for all forks; one thread each, because forks lose all others."""
    for name in PRELOADED:
        import_module(name)
    import_module("torch").set_num_threads(1)
    import_module("cv2").setNumThreads(1)


def main() -> int:
    """Examine the commands, print a line for each and for each problem; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=[case.name for case in CASES], metavar="COMMAND")
    parser.add_argument("--jobs", type=int, default=1, help="commands that are examined at the same time")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.commands is None or case.name in arguments.commands]
    failed = False
    load()
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        work = Path(name)
        work.chmod(0o755)
        prepare(work / "inputs", cases, run_to_the_end)
        run = partial(examine, work=work, kills=arguments.kills, seed=arguments.seed)
        with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("fork")) as executor:
            for case, outcome in zip(cases, executor.map(run, cases), strict=True):
                failed |= bool(outcome.problems)
                counts = f"{outcome.trials:4} trials, {len(outcome.problems)} problems, {outcome.seconds:.0f} s"
                print(f"{case.name:18} {counts}")
                for problem in dict.fromkeys(outcome.problems):
                    print(f"    {problem}", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())

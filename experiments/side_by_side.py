"""Several processes on one device that share the prepared data.

A training with small batches leaves a GPU idle most of the time, waiting for the next kernel launch. Several trainings
in parallel use it fully; they share one copy of the data, since one copy each would exceed its memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec

import torch
import torch.multiprocessing

Args = ParamSpec("Args")


def side_by_side(workers: int, work: Callable[Args, None], *args: Args.args, **kwargs: Args.kwargs) -> None:
    """Call a function in several processes at once; tensors among its arguments, also on a GPU, are shared.

    Args:
        workers: number of processes; 1 calls the function in this process.
        work: a module-level function that skips rows measured by other processes.
        args, kwargs: its arguments.

    Raises:
        ValueError: `workers` is less than 1.
        RuntimeError: some processes failed; they have printed their error, and the others have finished.
    """
    if workers < 1:
        raise ValueError(f"{workers} workers; expected 1 or more")
    if workers == 1:
        work(*args, **kwargs)
        return
    torch.cuda.empty_cache()  # release the memory of the preparation; does nothing without a GPU
    context = torch.multiprocessing.get_context("spawn")  # CUDA does not support fork
    processes = [context.Process(target=_run_while_parent_lives, args=(work, args, kwargs)) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = sum(process.exitcode != 0 for process in processes)
    if failed:
        raise RuntimeError(f"{failed} of {workers} processes failed; the rows of the others are stored")


def _run_while_parent_lives(work: Callable[..., None], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call `work` and end this process when its parent is killed, which sends no signal to its children."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    work(*args, **kwargs)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)

"""Several processes on one device, all of which see data that was prepared once.

A training of few images at a time leaves most of a GPU idle, since its next operation has not been asked for yet.
Several of them side by side fill it, but each with its own copy of the data would soon fill its memory too.
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

Given = ParamSpec("Given")


def side_by_side(workers: int, work: Callable[Given, None], *given: Given.args, **named: Given.kwargs) -> None:
    """Does some work in several processes at once; tensors that they are given, also on a GPU, are shared.

    Args:
        workers: how many; 1 works in this process.
        work: a function of a module, which finds out for itself what nobody is at.
        given, named: what it is called with.

    Raises:
        ValueError: there are none.
        RuntimeError: some of the processes failed, and have said why. The others went on to their end.
    """
    if workers < 1:
        raise ValueError(f"{workers} workers; expected 1 or more")
    if workers == 1:
        work(*given, **named)
        return
    torch.cuda.empty_cache()  # what the preparation needed is free for all; without a GPU, this does nothing
    context = torch.multiprocessing.get_context("spawn")  # CUDA survives no fork
    processes = [context.Process(target=_as_long_as_wanted, args=(work, given, named)) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = sum(process.exitcode != 0 for process in processes)
    if failed:
        raise RuntimeError(f"{failed} of {workers} processes failed; what the others measured is kept")


def _as_long_as_wanted(work: Callable[..., None], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Works, but not for a parent that is gone: one that was killed cannot tell its children."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    work(*given, **named)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)

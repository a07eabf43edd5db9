"""Several processes on one device, all of which see data that was prepared once.

A training of few images at a time leaves most of a GPU idle, since its next operation has not been asked for yet.
Several of them side by side fill it, but each with its own copy of the data would soon fill its memory too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

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
        RuntimeError: some of the processes failed, and have said why. The others went on to their end.
    """
    if workers == 1:
        work(*given, **named)
        return
    torch.cuda.empty_cache()  # what the preparation needed is free for all; without a GPU, this does nothing
    context = torch.multiprocessing.get_context("spawn")  # CUDA survives no fork
    processes = [context.Process(target=work, args=given, kwargs=named) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = sum(process.exitcode != 0 for process in processes)
    if failed:
        raise RuntimeError(f"{failed} of {workers} processes failed; what the others measured is kept")

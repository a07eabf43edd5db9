"""Device, processes and precision of a run, set up through Accelerate."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import nn

from entourage.compute import resolve_device
from entourage.extras import extra_imports
from entourage.training.options import Precision

if TYPE_CHECKING:
    from accelerate import Accelerator

# Accelerate's default of some minutes is too short for processes that wait while the main process validates.
PROCESS_TIMEOUT = timedelta(hours=12)
_DEVICE = "ACCELERATE_TORCH_DEVICE"
_MIXED = {"float32": "no", "float16": "fp16", "bfloat16": "bf16"}


def resolve_precision(precision: Precision, device: torch.device) -> Literal["float32", "float16", "bfloat16"]:
    """Return the number format of the forward and backward passes; weights and updates are always float32.

    Args:
        precision: a format, or "auto": bfloat16 on a GPU that supports it, float16 on older GPUs, float32 elsewhere.
        device: the device of the run.

    Raises:
        ValueError: float16 is requested on a CPU, which has no gradient scaling.
    """
    if precision == "auto":
        if device.type != "cuda":
            return "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    if precision == "float16" and device.type == "cpu":
        raise ValueError("precision is 'float16'; expected 'float32' or 'bfloat16' on the CPU")
    return precision


@contextmanager
def accelerated(device: str | torch.device, precision: Precision, skips_parameters: bool) -> Iterator[Accelerator]:
    """Create the `Accelerator` of a run and yield it until the run ends.

    Ranks are read from the environment variables that `torchrun` and `accelerate launch` set. Within the block, float32
    matrix products on a GPU may use TF32. This setting and the state of torch's generators are restored at its end.

    Args:
        device: as for `resolve_device`; each of several processes takes the GPU of its local rank.
        precision: as for `resolve_precision`.
        skips_parameters: see `Task`.

    Raises:
        ValueError: the processes use a strategy other than data parallelism.
        MissingExtraError: Accelerate is not installed.
    """
    with extra_imports():
        from accelerate import DistributedType  # a second that only training requires
    torch_device = _resolve_device(device)
    mixed_precision = _MIXED[resolve_precision(precision, torch_device)]
    atexit.unregister(_destroy_process_group)
    accelerator = _accelerator(torch_device, mixed_precision, skips_parameters)
    if accelerator.distributed_type not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
        raise ValueError(f"{accelerator.distributed_type} is not supported; expected data parallel processes")
    matmul = torch.get_float32_matmul_precision()
    on_gpu = torch_device.type == "cuda"
    with (
        torch.random.fork_rng(devices=[torch_device] if on_gpu else []),
        torch.cuda.device(torch_device if on_gpu else -1),
    ):
        try:
            if on_gpu:
                torch.set_float32_matmul_precision("high")
            yield accelerator
        finally:
            torch.set_float32_matmul_precision(matmul)
    if accelerator.num_processes > 1:
        # Not after an error: the processes may still wait for each other.
        atexit.register(_destroy_process_group)


@contextmanager
def prepared_model(accelerator: Accelerator, model: nn.Module) -> Iterator[nn.Module]:
    """Wrap a model for several processes and mixed precision; the model is restored at the end of the block.

    Accelerate replaces the `forward` attribute of the module for mixed precision; callers must get it back unchanged.
    """
    forward = model.__dict__.get("forward")
    try:
        yield accelerator.prepare_model(model)
    finally:
        for name in ("forward", "_original_forward", "_is_accelerate_prepared"):
            model.__dict__.pop(name, None)
        if forward is not None:
            model.__dict__["forward"] = forward


def reseed(device: torch.device, key: Sequence[int]) -> None:
    """Seed torch's generators of the CPU and of a device from a key, so that checkpoints need no generator state.

    `torch.manual_seed` also seeds all other kinds of devices: this takes longer than a step of a small network, and
    queues a call for each one that is not initialized.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _resolve_device(device: str | torch.device) -> torch.device:
    from accelerate.utils import parse_flag_from_env

    if device == "auto" and parse_flag_from_env("ACCELERATE_USE_CPU"):  # accelerate launch --cpu
        return torch.device("cpu")
    torch_device = resolve_device(device)
    if torch_device.type == "cuda" and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device()) if torch_device == torch.device("cuda") else torch_device


def _accelerator(torch_device: torch.device, mixed_precision: str, skips_parameters: bool) -> Accelerator:
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import GradientAccumulationPlugin

    # Accelerate fixes device and precision for the whole process, but a program may train twice: state that differs is
    # reset first. An existing process group stays.
    shared = PartialState._shared_state
    if shared and shared.get("device") != torch_device:
        AcceleratorState._reset_state(reset_partial_state=True)
    elif AcceleratorState._shared_state.get("_mixed_precision", mixed_precision) != mixed_precision:
        AcceleratorState._reset_state()
    previous = os.environ.get(_DEVICE)
    if "LOCAL_RANK" not in os.environ:
        os.environ[_DEVICE] = str(torch_device)  # Accelerate has no argument for one of several GPUs
    else:
        # The functions of this module hold the process group as a default argument from their definition on. If torch
        # imported it later, with the first distributed model, the group's threads could not be ended by
        # _destroy_process_group.
        import torch.distributed.nn  # noqa: F401
    try:
        return Accelerator(
            mixed_precision=mixed_precision,
            cpu=torch_device.type == "cpu",
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),  # the loop divides the losses
            kwargs_handlers=[
                InitProcessGroupKwargs(timeout=PROCESS_TIMEOUT),
                DistributedDataParallelKwargs(find_unused_parameters=skips_parameters),
            ],
        )
    finally:
        if previous is None:
            os.environ.pop(_DEVICE, None)
        else:
            os.environ[_DEVICE] = previous


def _destroy_process_group() -> None:
    """End the process group of distributed training and its threads.

    Otherwise a thread that frees a tensor after the interpreter has stopped may, in rare cases, abort the program.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()

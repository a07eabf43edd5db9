"""Where tensors live: the name of a device, checked once and early."""

import torch

_EXPECTED = "expected 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps'"


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn a name into a device that is really there.

    Args:
        device: a torch device, its name, or "auto": CUDA if there is one, otherwise the CPU.

    Returns:
        A device on which tensors can be made.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {str(device)!r} is unknown; {_EXPECTED}") from error
    if resolved.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device {str(device)!r} is not supported; {_EXPECTED}")
    if not _is_available(resolved):
        raise ValueError(f"device {str(device)!r} is not available; {_EXPECTED}, here: {', '.join(_available())}")
    return resolved


def _is_available(device: torch.device) -> bool:
    if device.type == "cuda":
        return (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return True


def _available() -> list[str]:
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names

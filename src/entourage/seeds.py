"""Seeds that are nobody else's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Lets first weights that are drawn within the block follow from a seed; torch's own generator stays as it is.

    Only the CPU's, where networks are made: `torch.manual_seed` would seed all devices, and nobody would put them back.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def derive_seed(seed: int, *what: object) -> int:
    """A number that depends on the seed and on what it is for, and on nothing else."""
    digest = hashlib.blake2b(json.dumps([seed, *map(str, what)]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1

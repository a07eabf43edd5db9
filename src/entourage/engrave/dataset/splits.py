"""Train, validation and test: split by work, never by page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from entourage.seeds import derive_seed

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_SHARES = {"val": 0.1, "test": 0.1}


def split_works(works: Iterable[str], seed: int) -> dict[str, Split]:
    """The split of each work: a tenth for validation, a tenth for test, the others for training.

    Which works those are is random but depends on nothing but the names and the seed. From three works on, no split is
    empty.

    Args:
        works: what tells works apart; names may repeat.
        seed: of the draw.
    """
    shuffled = sorted(set(works), key=lambda work: (derive_seed(seed, "split", work), work))
    sizes = {name: max(round(share * len(shuffled)), 1 if len(shuffled) > 2 else 0) for name, share in _SHARES.items()}
    split: dict[str, Split] = dict.fromkeys(shuffled, "train")
    split |= dict.fromkeys(shuffled[: sizes["val"]], "val")
    split |= dict.fromkeys(shuffled[sizes["val"] : sizes["val"] + sizes["test"]], "test")
    return split

from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.training import images as bank
from entourage.training.images import ImageBank, fits_on_device

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)


def test_take_returns_images_in_order() -> None:
    bank = ImageBank(PIXELS)
    assert len(bank) == 5
    taken = bank.take(np.array([4, 0, 4]))
    assert taken.dtype == torch.uint8
    assert taken.shape == (3, 3, 4, 6)
    assert taken.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(taken.permute(0, 2, 3, 1).numpy(), PIXELS[[4, 0, 4]])


def test_take_returns_a_copy() -> None:
    bank = ImageBank(PIXELS.copy())
    bank.take(np.array([1])).zero_()
    assert np.array_equal(bank.values, PIXELS)


def test_memory_mapped_file(tmp_path: Path) -> None:
    np.save(tmp_path / "pixels.npy", PIXELS)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    assert np.array_equal(ImageBank(mapped).take(np.array([2])).permute(0, 2, 3, 1).numpy(), PIXELS[[2]])


def test_move_to_cpu_makes_no_copy() -> None:
    bank = ImageBank(PIXELS)
    bank.move(torch.device("cpu"))
    assert bank._resident is None
    assert len(bank.take(np.array([], dtype=np.int64))) == 0


@pytest.mark.parametrize(("free", "fits"), [(4 * PIXELS.nbytes, True), (4 * PIXELS.nbytes - 1, False)])
def test_move_copies_to_gpu_within_a_quarter_of_its_memory(
    free: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)  # replaces a copy to the GPU
    assert fits_on_device(torch.device("cuda"), PIXELS.nbytes) == fits
    assert not fits_on_device(torch.device("cpu"), PIXELS.nbytes)
    bank = ImageBank(PIXELS)
    bank.move(torch.device("cuda"))
    assert (bank._resident is not None) == fits
    assert np.array_equal(bank.take(np.array([3, 1])).permute(0, 2, 3, 1).numpy(), PIXELS[[3, 1]])


@pytest.mark.parametrize(
    "values", [PIXELS[0], PIXELS[..., :1], PIXELS.astype(np.float32), PIXELS.transpose(0, 3, 1, 2)]
)
def test_invalid_arrays_raise(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^values: .*; expected uint8 \(n, h, w, 3\)"):
        ImageBank(values)


def test_digest_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)
    reference = ImageBank(values).digest
    monkeypatch.setattr(bank, "DIGEST_ROWS", 7)
    assert ImageBank(values).digest == reference
    values[19, 3, 3, 2] ^= 1
    assert ImageBank(values).digest != reference

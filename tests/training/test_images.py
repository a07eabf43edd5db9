from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.training import images as bank
from entourage.training.images import ImageBank, fits_on_device

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)


def test_rows_are_taken_in_their_order_as_images() -> None:
    bank = ImageBank(PIXELS)
    assert len(bank) == 5
    taken = bank.take(np.array([4, 0, 4]))
    assert taken.dtype == torch.uint8
    assert taken.shape == (3, 3, 4, 6)
    assert taken.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(taken.permute(0, 2, 3, 1).numpy(), PIXELS[[4, 0, 4]])


def test_what_is_taken_is_a_copy() -> None:
    bank = ImageBank(PIXELS.copy())
    bank.take(np.array([1])).zero_()
    assert np.array_equal(bank.values, PIXELS)


def test_a_mapped_file_will_do(tmp_path: Path) -> None:
    np.save(tmp_path / "pixels.npy", PIXELS)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    assert np.array_equal(ImageBank(mapped).take(np.array([2])).permute(0, 2, 3, 1).numpy(), PIXELS[[2]])


def test_a_cpu_holds_no_second_copy() -> None:
    bank = ImageBank(PIXELS)
    bank.move(torch.device("cpu"))
    assert bank._resident is None
    assert len(bank.take(np.array([], dtype=np.int64))) == 0


@pytest.mark.parametrize(("free", "fits"), [(4 * PIXELS.nbytes, True), (4 * PIXELS.nbytes - 1, False)])
def test_a_gpu_holds_all_if_a_quarter_of_its_memory_is_enough(
    free: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)  # stands for a copy to the GPU
    assert fits_on_device(torch.device("cuda"), PIXELS.nbytes) == fits
    assert not fits_on_device(torch.device("cpu"), PIXELS.nbytes)
    bank = ImageBank(PIXELS)
    bank.move(torch.device("cuda"))
    assert (bank._resident is not None) == fits
    assert np.array_equal(bank.take(np.array([3, 1])).permute(0, 2, 3, 1).numpy(), PIXELS[[3, 1]])


@pytest.mark.parametrize(
    "values", [PIXELS[0], PIXELS[..., :1], PIXELS.astype(np.float32), PIXELS.transpose(0, 3, 1, 2)]
)
def test_other_arrays_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"pixels of shape .* and type .*; expected uint8 \(n, h, w, 3\)"):
        ImageBank(values)


def test_pixels_are_digested_as_a_whole_however_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)
    reference = ImageBank(values).digest
    monkeypatch.setattr(bank, "DIGEST_ROWS", 7)
    assert ImageBank(values).digest == reference
    values[19, 3, 3, 2] ^= 1
    assert ImageBank(values).digest != reference

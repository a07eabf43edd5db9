"""Cached views: values, storage, resumption and digests."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from entourage.label.semi_supervised import views as module
from entourage.label.semi_supervised.views import CachedViews, LiveViews, ViewOptions, cache_views
from entourage.training import images as image_bank
from entourage.training.images import NO_AUGMENTATION, AugmentationOptions

CPU = torch.device("cpu")


def test_cached_views_are_the_activations_of_live_views(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.BATCH, "cpu", 7)  # 30 images in batches, the last of two
    live, stem, rows = toys.live(), toys.stem(), torch.tensor([29, 4, 13])
    cached = cache_views(stem, live, CPU)
    assert cached.values.shape == (30, 16, 4, 6, 6)
    assert cached.values.dtype == torch.bfloat16
    assert len(cached) == 30
    with torch.no_grad():
        for mirrored in (False, True):
            expected = stem(live.unaugmented(rows, mirrored))
            torch.testing.assert_close(cached.unaugmented(rows, mirrored), expected, rtol=2**-8, atol=0)  # eight bits


def test_cached_views_depend_on_the_seed_and_not_on_global_random_state(toys: ModuleType) -> None:
    live, stem, before = toys.live(), toys.stem(), torch.random.get_rng_state()
    one, same, other = (cache_views(stem, live, CPU, seed=seed).values for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, same)
    assert torch.equal(one[:, :2], other[:, :2])  # the image and its mirror image are not random
    for view in range(2, 16):
        assert not torch.equal(one[:, view], other[:, view])
        assert not torch.equal(one[:, view], one[:, view - 1])


def test_views_in_a_file_equal_those_in_memory_and_are_reused(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.BATCH, "cpu", 7)
    live, stem, file = toys.live(), toys.stem(), tmp_path / "run" / "views.bin"
    expected = cache_views(stem, live, CPU, seed=3).values
    batch_sizes: list[int] = []
    stem.register_forward_hook(lambda *given: batch_sizes.append(len(given[2])))
    cached = cache_views(stem, live, CPU, seed=3, file=file)
    assert torch.equal(cached.values, expected)
    assert file.stat().st_size == 2 * expected.numel()
    batch_sizes.clear()
    again = cache_views(stem, live, CPU, seed=3, file=file)
    assert torch.equal(again.values, expected)
    assert again.digest() == cached.digest()
    assert batch_sizes == [1]  # one image, for the shape
    assert not torch.equal(cache_views(stem, live, CPU, seed=4, file=file).values, expected)  # computed again


def test_an_interrupted_cache_is_resumed(toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.BATCH, "cpu", 7)
    live, stem, file = toys.live(), toys.stem(), tmp_path / "views.bin"
    expected = cache_views(stem, live, CPU).values
    batch_sizes: list[int] = []

    def stop(*given: Any) -> None:
        batch_sizes.append(len(given[2]))
        if len(batch_sizes) == 40:  # in the third batch of sixteen views each
            raise KeyboardInterrupt

    hook = stem.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        cache_views(stem, live, CPU, file=file)
    hook.remove()
    batch_sizes.clear()
    stem.register_forward_hook(lambda *given: batch_sizes.append(len(given[2])))
    assert torch.equal(cache_views(stem, live, CPU, file=file).values, expected)
    assert batch_sizes == [1] + [7] * 32 + [2] * 16  # the last 16 of 30 images


def test_the_number_and_kind_of_cached_views_follow_the_options(toys: ModuleType) -> None:
    options = ViewOptions(weak=NO_AUGMENTATION, strong=AugmentationOptions(flip=1.0), n_weak=3, n_strong=2)
    values = cache_views(toys.stem(), toys.live(options=options), CPU).values.float()
    assert values.shape[1] == 5
    torch.testing.assert_close(values[:, 2], values[:, 0], rtol=0.01, atol=0.01)
    torch.testing.assert_close(values[:, 3], values[:, 1], rtol=0.01, atol=0.01)
    torch.testing.assert_close(values[:, 4], values[:, 1], rtol=0.01, atol=0.01)


def test_the_stem_runs_in_evaluation_mode_without_gradients(toys: ModuleType) -> None:
    stem = nn.Sequential(toys.stem(), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    cached = cache_views(stem, toys.live(), CPU)
    assert not stem.training
    assert stem[1].num_batches_tracked == 0
    assert not cached.values.requires_grad


def test_weak_and_strong_views_are_drawn_from_separate_ranges() -> None:
    values = torch.arange(6.0).view(1, 6, 1, 1, 1).expand(4, 6, 1, 1, 1) + 10 * torch.arange(4.0).view(4, 1, 1, 1, 1)
    cached, rows = CachedViews(values, n_weak=2), torch.tensor([2, 0]).repeat(100)
    torch.manual_seed(0)
    weak, strong = cached.weak(rows), cached.strong(rows)
    assert weak.shape == (200, 1, 1, 1)
    assert torch.equal((weak // 10).ravel(), rows.float())
    assert torch.equal((strong // 10).ravel(), rows.float())
    assert (weak % 10).unique().tolist() == [0, 1]
    assert (strong % 10).unique().tolist() == [2, 3, 4, 5]
    assert not torch.equal(cached.weak(rows), weak)  # drawn again
    assert (cached.unaugmented(rows) % 10).unique().tolist() == [0]
    assert (cached.unaugmented(rows, flipped=True) % 10).unique().tolist() == [1]


def test_without_flip_no_view_is_mirrored(toys: ModuleType) -> None:
    always_flip = AugmentationOptions(flip=1.0)
    options = ViewOptions(weak=always_flip, strong=always_flip, n_weak=3, n_strong=1, flip=False)
    live, rows = toys.live(options=options), torch.arange(30)
    plain = live.unaugmented(rows)
    for view in (live.weak(rows), live.strong(rows)):
        torch.testing.assert_close(view, plain, rtol=0, atol=1e-4)
    cached = cache_views(nn.Identity(), live, CPU)
    assert cached.values.shape[1] == 4
    for view in range(4):
        torch.testing.assert_close(cached.values[:, view].float(), plain, rtol=2**-8, atol=1e-4)  # eight bits
    assert not cached.flip
    assert not live.flip
    for views in (live, cached):
        with pytest.raises(ValueError, match=r"flipped is True.*; expected ViewOptions\(flip=True\)"):
            views.unaugmented(rows, flipped=True)
    assert CachedViews(cached.values, 3).digest() != cached.digest()


def test_without_flip_the_second_view_is_a_weak_view(toys: ModuleType) -> None:
    live = toys.live(options=ViewOptions(flip=False))
    cached = cache_views(nn.Identity(), live, CPU).values.float()
    difference = (cached[:, 1] - cached[:, 0]).abs().amax(dim=(1, 2, 3))
    assert (difference > 0.05).float().mean() > 0.9  # another crop
    flipped = (cached[:, 1] - cached[:, 0].flip(3)).abs().amax(dim=(1, 2, 3))
    assert (flipped > 0.05).float().mean() > 0.9


def test_views_move_to_a_gpu_only_if_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, moved = torch.device("cuda", 0), []
    values = torch.zeros(4, 3, 2, 2, 2, dtype=torch.bfloat16)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, target: (moved.append(str(target)), self)[1])
    for free, expected in ((4 * values.nbytes - 1, "cpu"), (4 * values.nbytes, "cuda:0")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 10**9))
        CachedViews(values, 2).move(gpu)
        assert moved.pop() == expected
    CachedViews(values, 2).move(CPU)
    assert not moved  # no copy


@pytest.mark.parametrize("fits", [True, False])
def test_views_are_allocated_on_the_device_only_if_they_fit(
    fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[torch.device, int]] = []
    monkeypatch.setattr(module, "fits_on_device", lambda device, size: (calls.append((device, size)), fits)[1])
    device = torch.device("meta")  # in place of a GPU
    file, shape = tmp_path / "views.bin", (5, 3, 4, 6, 6)
    for path in (None, file):
        cached = module._allocate_views(shape, device, path, "origin").values
        assert calls.pop() == (device, 5 * 3 * 4 * 6 * 6 * 2)
        assert (cached.shape, cached.dtype) == (shape, torch.bfloat16)
        assert cached.device == (device if fits else CPU)
    assert file.exists() != fits


def test_invalid_views_raise(toys: ModuleType) -> None:
    for weak in (1, 4):
        with pytest.raises(ValueError, match=f"n_weak is {weak}; expected 2 to 3"):
            CachedViews(torch.zeros(2, 3, 1, 1, 1), weak)
    with pytest.raises(ValueError, match=r"values has shape \(2, 3\); expected \(n, views, c, h, w\)"):
        CachedViews(torch.zeros(2, 3), 2)
    with pytest.raises(ValueError, match="all 3 views of each image are weak; expected n_strong of 1"):
        CachedViews(torch.zeros(2, 3, 1, 1, 1), 3).strong(torch.tensor([0]))
    with pytest.raises(ValueError, match="n_weak is 1; expected a whole number of 2 or more"):
        ViewOptions(n_weak=1)
    with pytest.raises(ValueError, match="n_strong is -1; expected a whole number of 0 or more"):
        ViewOptions(n_strong=-1)
    with pytest.raises(ValueError, match="live: has no images; expected"):
        cache_views(toys.stem(), LiveViews(np.empty((0, 4, 4, 3), np.uint8), toys.preprocessing()), CPU)
    with pytest.raises(ValueError, match="expected uint8"):
        LiveViews(np.zeros((2, 4, 4, 3)), toys.preprocessing())  # type: ignore[arg-type]


def test_the_digest_depends_on_images_and_options(toys: ModuleType) -> None:
    live = toys.live()
    assert live.digest() == toys.live().digest()
    others = [toys.live(14), toys.live(options=ViewOptions(weak=NO_AUGMENTATION))]
    others.append(LiveViews(toys.images(seed=1)[0], toys.preprocessing()))
    assert len({live.digest(), *(other.digest() for other in others)}) == 4
    cached = CachedViews(torch.arange(240.0).view(10, 4, 6, 1, 1), 2)
    changed = CachedViews(cached.values.roll(1, dims=0), 2)
    assert cached.digest() == CachedViews(cached.values.clone(), 2).digest()
    assert len({cached.digest(), changed.digest(), CachedViews(cached.values, 3).digest()}) == 3


@pytest.mark.parametrize("block", [7, 256])
def test_the_digest_depends_on_every_pixel(toys: ModuleType, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(image_bank, "DIGEST_ROWS", block)
    pixels = np.tile(toys.images()[0], (5, 1, 1, 1))  # more images than a sample of 64 would include
    stem, options = toys.stem(), ViewOptions(n_weak=2, n_strong=0)

    def both(values: np.ndarray) -> tuple[str, str]:
        live = LiveViews(values, toys.preprocessing(), options)
        return live.digest(), cache_views(stem, live, CPU).digest()

    first = both(pixels)
    assert both(pixels.copy()) == first
    for image in (0, 1, 149):
        changed = pixels.copy()
        changed[image, 3, 4, 1] ^= 1
        assert not set(both(changed)) & set(first)
    swapped = pixels.copy()
    swapped[[2, 4]] = pixels[[4, 2]]
    assert not set(both(swapped)) & set(first)


def test_the_digest_of_cached_views_is_that_of_their_origin(toys: ModuleType) -> None:
    live, stem = toys.live(), toys.stem()
    cached = cache_views(stem, live, CPU)
    # On a GPU, rounding differs between runs.
    rounded = CachedViews(cached.values * (1 + 2**-7), 4, origin=cached.origin)
    assert rounded.digest() == cached.digest()
    assert cache_views(stem, live, CPU, seed=1).digest() != cached.digest()
    with torch.no_grad():
        stem.conv.bias[0] += 1
    assert cache_views(stem, live, CPU).digest() != cached.digest()
    bare = CachedViews(cached.values, 4)
    other = cached.values.clone()
    other[29, 15, 3, 5, 5] += 1
    assert CachedViews(other, 4).digest() != bare.digest()

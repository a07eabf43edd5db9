import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.backbones.backbone import Backbone
from entourage.backbones.features import Extraction, cached_features, default_cache_dir

Makes = Callable[[int], list[Path]]
Expected = Callable[[list[int]], np.ndarray]
Run = Callable[..., Extraction]


@pytest.fixture
def run(backbone: Backbone, tmp_path: Path) -> Run:
    def cached(paths: list[Path], **options: Any) -> Extraction:
        options = {"backbone": backbone, "cache_dir": tmp_path / "cache", "batch_size": 2, "device": "cpu", **options}
        return cached_features(paths, **options)

    return cached


def test_second_run_uses_the_cache(run: Run, make_images: Makes, expected_features: Expected, network: Any) -> None:
    paths = make_images(5)
    first, second = run(paths), run(paths)
    assert network.n_images == 5
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_allclose(first.features, expected_features(list(range(5))), atol=1e-6)
    assert second.indices == list(range(5))


def test_renamed_copied_and_reordered_images_are_cached(
    run: Run, make_images: Makes, expected_features: Expected, network: Any
) -> None:
    paths = make_images(4)
    run(paths)
    moved = paths[0].rename(paths[0].parent / "moved.png")
    copied = Path(shutil.copy(paths[1], paths[1].parent / "copied.png"))
    extraction = run([paths[3], copied, paths[2], moved, paths[1]])
    assert network.n_images == 4
    np.testing.assert_allclose(extraction.features, expected_features([3, 1, 2, 0, 1]), atol=1e-6)


def test_only_new_and_changed_images_are_computed(
    run: Run, make_images: Makes, expected_features: Expected, network: Any
) -> None:
    run(make_images(3))
    paths = make_images(5)
    shutil.copy(paths[4], paths[0])
    extraction = run(paths)
    assert network.n_images == 3 + 2  # the two new ones; the changed one equals the last one
    np.testing.assert_allclose(extraction.features, expected_features([4, 1, 2, 3, 4]), atol=1e-6)


def test_other_weights_have_separate_features(run: Run, make_images: Makes, backbone: Backbone, network: Any) -> None:
    paths = make_images(2)
    run(paths)
    run(paths, backbone=replace(backbone, weights="trained further"))
    assert network.n_images == 4


def test_interrupted_run_is_resumed(
    run: Run, make_images: Makes, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = make_images(6)
    forward = type(network).forward

    def interrupted(self: Any, images: Any) -> Any:
        if self.n_images >= 4:
            raise KeyboardInterrupt
        return forward(self, images)

    monkeypatch.setattr(type(network), "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(paths)
    monkeypatch.undo()
    assert network.n_images == 4
    assert len(run(paths).indices) == 6
    assert network.n_images == 6


def test_failures_are_reported_for_every_path_and_not_cached(run: Run, make_images: Makes, network: Any) -> None:
    paths = make_images(4)
    content = paths[1].read_bytes()
    paths[1].write_bytes(b"broken")
    paths[2].write_bytes(b"broken")
    paths[3].unlink()
    extraction = run(paths)
    assert extraction.indices == [0]
    assert extraction.features.shape == (1, 3)
    assert [path for path, _ in extraction.failures] == paths[1:]
    assert extraction.failures[2][1] == "no such file"
    assert run(paths).failures == extraction.failures
    paths[1].write_bytes(content)
    assert run(paths).indices == [0, 1]
    assert network.n_images == 2


def test_features_of_a_damaged_cache_are_computed_again(
    run: Run, make_images: Makes, network: Any, tmp_path: Path
) -> None:
    paths = make_images(3)
    first = run(paths)
    for shard in (tmp_path / "cache").rglob("*.npz"):
        shard.write_bytes(shard.read_bytes()[:-10])
    second = run(paths)
    assert network.n_images == 6
    np.testing.assert_array_equal(first.features, second.features)


def test_unwritable_cache_warns(run: Run, make_images: Makes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="features are not cached"):
        extraction = run(make_images(2), cache_dir=tmp_path / "file")
    assert extraction.indices == [0, 1]


def test_concurrent_runs(run: Run, make_images: Makes, expected_features: Expected, network: Any) -> None:
    paths = make_images(8)
    with ThreadPoolExecutor(4) as executor:
        extractions = list(executor.map(lambda _: run(paths), range(4)))
    for extraction in extractions:
        np.testing.assert_allclose(extraction.features, expected_features(list(range(8))), atol=1e-6)
    computed = network.n_images
    run(paths)
    assert network.n_images == computed


def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("ENTOURAGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "entourage"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache" / "entourage"


def test_empty_input(run: Run) -> None:
    assert run([]).features.shape == (0, 3)

from dataclasses import replace

import numpy as np
import pytest
from experiments.embed_trials import Bench, Setting
from tests.embed import toys

from entourage.data.image_set import ImageSet, RawImages
from entourage.embed.losses.options import GroupLossOptions
from entourage.embed.training.recipes import Recipe, Stage
from entourage.training.images import NO_AUGMENTATION
from experiments import embed_trials


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A toy network on toy images: eight classes to train on and eight to test on, of every data set."""
    pixels, labels = toys.images(classes=16, each=8)
    values = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    source = RawImages(values, np.arange(len(labels)))
    split = (labels >= 8).astype(np.uint8)
    names = [str(label) for label in range(16)]
    images = ImageSet("toys", source, labels, names, split, [str(n) for n in range(len(labels))])
    monkeypatch.setattr(embed_trials, "find_dataset", lambda name: images)
    monkeypatch.setattr(embed_trials, "load_backbone", lambda *_, **__: toys.backbone())
    recipe = Recipe(
        group=GroupLossOptions(temperature=1.0),
        classes_per_batch=4,
        samples_per_class=5,
        size=toys.SIDE,
        view=NO_AUGMENTATION,
        average=0.5,
        stages=(Stage(2, 1e-2),),
    )
    return Bench(Setting(("cub200", "cars196"), "toy", recipe, seeds=2, device="cpu"))


@pytest.fixture
def one_set(bench: Bench) -> Bench:
    """The same with one data set and one seed."""
    return Bench(replace(bench.setting, datasets=("cub200",), seeds=1))

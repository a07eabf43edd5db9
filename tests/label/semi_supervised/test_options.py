import dataclasses

import numpy as np
import pytest

from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.options import PRESETS, AugmentOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training import TrainingOptions
from entourage.training.images import NO_AUGMENTATION


def test_presets_have_names() -> None:
    assert list(PRESETS) == ["default", "thesis", "original"]
    assert AugmentOptions.from_preset("default") == AugmentOptions()
    with pytest.raises(ValueError, match="preset 'best' is unknown; expected one of default, thesis, original"):
        AugmentOptions.from_preset("best")


def test_no_preset_balances() -> None:
    assert not any(options.balance for options in PRESETS.values())


def test_the_thesis_preset_trains_once_on_hard_labels() -> None:
    thesis = AugmentOptions.from_preset("thesis")
    assert (thesis.rounds, thesis.method, thesis.pseudo_label_mode, thesis.trainable_layers, thesis.size) == (
        1,
        "labels",
        "hard",
        "all",
        224,
    )
    assert thesis.pool_labels  # given and pseudo-labels are one training set
    assert thesis.views.weak == NO_AUGMENTATION
    assert (thesis.method_options.ema_decay, thesis.method_options.freeze_norm) == (0, False)
    assert (thesis.training.optimizer, thesis.training.epochs, thesis.training.learning_rate) == ("adam", 10, 3e-4)


def test_the_original_preset_differs_only_in_learning_rate_and_batch_size() -> None:
    thesis, original = AugmentOptions.from_preset("thesis"), AugmentOptions.from_preset("original")
    assert original.training.learning_rate == 1e-4
    assert original.method_options.unlabelled_batch == 8
    restored = dataclasses.replace(original, method_options=thesis.method_options, training=thesis.training)
    assert restored == thesis
    assert dataclasses.replace(original.training, learning_rate=3e-4) == thesis.training


def test_flip_false_disables_mirror_images() -> None:
    options = AugmentOptions(views=ViewOptions(n_weak=3))
    assert options.view_options is options.views
    assert options.view_options.flip
    unflipped = dataclasses.replace(options, flip=False).view_options
    assert unflipped == ViewOptions(n_weak=3, flip=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 31}, "size is 31; expected a whole number of 32 or more: networks halve"),
        ({"size": 64.5}, "size is 64.5; expected a whole number of 32 or more"),
        ({"rounds": 0}, "rounds is 0; expected a whole number of 1 or more"),
        ({"rounds": 1.5}, "rounds is 1.5; expected a whole number of 1 or more"),
        ({"n_neighbors": 0}, "n_neighbors is 0; expected a whole number of 1 or more, or 'auto'"),
        ({"n_neighbors": "all"}, "n_neighbors is 'all'; expected a whole number of 1 or more, or 'auto'"),
        ({"metric": "taxi"}, "metric is 'taxi'; expected 'cosine' or 'euclidean'"),
        ({"method": "magic"}, "method is 'magic'; expected 'consistency' or 'labels'"),
        ({"trainable_layers": "none"}, "trainable_layers is 'none'; expected 'late' or 'all'"),
        ({"pseudo_label_mode": "blind"}, "pseudo_label_mode is 'blind'; expected 'hard' or 'soft' or 'weighted'"),
        ({"balance": "yes"}, "balance is 'yes'; expected True or False"),
        ({"training": TrainingOptions(monitor="accuracy")}, "monitor is 'accuracy'; expected None"),
    ],
)
def test_invalid_options_raise(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentOptions(**changes)  # type: ignore[arg-type]


def test_all_presets_have_auto_neighbours() -> None:
    assert {options.n_neighbors for options in PRESETS.values()} == {"auto"}  # few images: few neighbours


def test_numpy_integers_become_python_integers() -> None:
    options = AugmentOptions(size=np.int64(64), n_neighbors=np.int32(5), method_options=MethodOptions(seed=np.int64(3)))
    assert [type(value) for value in (options.size, options.n_neighbors, options.method_options.seed)] == [int] * 3

import dataclasses

import numpy as np
import pytest

from entourage.label.semi_supervised import PRESETS, AugmentOptions, preset
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training import TrainingOptions
from entourage.training.images import NO_AUGMENTATION


def test_presets_are_known_by_name() -> None:
    assert list(PRESETS) == ["default", "thesis", "original"]
    assert preset("default") == AugmentOptions()
    with pytest.raises(ValueError, match="preset 'best' is unknown; expected one of default, thesis, original"):
        preset("best")


def test_no_way_takes_given_labels_for_a_fair_sample() -> None:
    assert not any(options.balance for options in PRESETS.values())


def test_the_thesis_trains_once_on_hard_labels_without_tricks() -> None:
    thesis = preset("thesis")
    assert (thesis.rounds, thesis.method, thesis.trust, thesis.trained, thesis.size) == (
        1,
        "labels",
        "hard",
        "all",
        224,
    )
    assert thesis.alike  # given and found labels are one training set
    assert thesis.looks.weak == NO_AUGMENTATION
    assert (thesis.batches.decay, thesis.batches.freeze_norm) == (0, False)
    assert (thesis.training.optimizer, thesis.training.epochs, thesis.training.learning_rate) == ("adam", 10, 3e-4)


def test_the_original_differs_in_rate_and_batch_alone() -> None:
    thesis, original = preset("thesis"), preset("original")
    assert original.training.learning_rate == 1e-4
    assert original.batches.unlabelled_batch == 8
    restored = dataclasses.replace(original, batches=thesis.batches, training=thesis.training)
    assert restored == thesis
    assert dataclasses.replace(original.training, learning_rate=3e-4) == thesis.training


def test_views_are_mirrored_unless_that_is_not_allowed() -> None:
    options = AugmentOptions(looks=ViewOptions(n_weak=3))
    assert options.views is options.looks
    assert options.views.mirror
    upright = dataclasses.replace(options, mirror=False).views
    assert upright == ViewOptions(n_weak=3, mirror=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 31}, "size is 31; expected a whole number of 32 or more: networks halve"),
        ({"size": 64.5}, "size is 64.5; expected a whole number of 32 or more"),
        ({"rounds": 0}, "rounds is 0; expected a whole number of 1 or more"),
        ({"rounds": 1.5}, "rounds is 1.5; expected a whole number of 1 or more"),
        ({"neighbours": 0}, "neighbours is 0; expected a whole number of 1 or more, or 'auto'"),
        ({"neighbours": "all"}, "neighbours is 'all'; expected a whole number of 1 or more, or 'auto'"),
        ({"metric": "taxi"}, "metric is 'taxi'; expected 'cosine' or 'euclidean'"),
        ({"method": "magic"}, "method is 'magic'; expected 'consistency' or 'labels'"),
        ({"trained": "none"}, "trained is 'none'; expected 'late' or 'all'"),
        ({"trust": "blind"}, "trust is 'blind'; expected 'hard' or 'soft' or 'weighted'"),
        ({"balance": "yes"}, "balance is 'yes'; expected True or False"),
        ({"training": TrainingOptions(monitor="accuracy")}, "monitor is 'accuracy'; expected None: in a round"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentOptions(**changes)  # type: ignore[arg-type]


def test_no_way_has_more_neighbours_than_the_game_would_have() -> None:
    assert {options.neighbours for options in PRESETS.values()} == {"auto"}  # few images have few of their kind


def test_whole_numbers_of_numpy_are_kept_as_pythons() -> None:
    options = AugmentOptions(size=np.int64(64), neighbours=np.int32(5), batches=MethodOptions(seed=np.int64(3)))
    assert [type(value) for value in (options.size, options.neighbours, options.batches.seed)] == [int] * 3

from __future__ import annotations

import pytest

from entourage.label.classify.fixmatch import FixMatch
from entourage.label.classify.mean_teacher import MeanTeacher
from entourage.label.classify.pi_model import PiModel
from entourage.label.classify.pseudo_label import PseudoLabel
from entourage.label.classify.told import THRESHOLD, WEIGHT, SureMethod, WeightedMethod


@pytest.mark.parametrize(("method", "base"), [(PiModel, WeightedMethod), (MeanTeacher, WeightedMethod)])
def test_a_weight_is_for_methods_that_compare_answers(method: type, base: type) -> None:
    assert issubclass(method, base)
    assert method.__init__.__kwdefaults__ == {"weight": WEIGHT}


@pytest.mark.parametrize("method", [FixMatch, PseudoLabel])
def test_a_threshold_is_for_methods_that_believe_answers(method: type) -> None:
    assert issubclass(method, SureMethod)
    assert method.__init__.__kwdefaults__ == {"threshold": THRESHOLD}

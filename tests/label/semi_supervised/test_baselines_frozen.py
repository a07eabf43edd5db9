import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC

from entourage.label.semi_supervised.baselines import DEFAULT_C, FROZEN, frozen_classifier


@pytest.mark.parametrize("name", FROZEN)
def test_predictions_do_not_depend_on_the_length_of_features(name: str) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 3
    features = np.eye(3).repeat(20, axis=1)[truth] + 0.3 * rng.normal(size=(90, 60))
    features *= 10.0 ** rng.uniform(-3, 3, size=(90, 1))
    classifier = frozen_classifier(name).fit(features[:15], truth[:15])
    assert (classifier.predict(features[15:]) == truth[15:]).mean() > 0.95
    assert np.array_equal(classifier.predict(1000 * features), classifier.predict(features))


def test_only_the_kernel_svm_separates_nonlinear_classes() -> None:
    angle = np.linspace(0, 2 * np.pi, 80, endpoint=False)
    features = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    truth = (np.floor(angle / (np.pi / 4)) % 2).astype(int)  # eight sectors with alternating classes
    scores = {name: frozen_classifier(name).fit(features, truth).score(features, truth) for name in FROZEN}
    assert scores["kernel-svm"] > 0.9
    assert max(scores["linear"], scores["linear-svm"]) < 0.7


def test_names_select_the_classifier() -> None:
    assert isinstance(frozen_classifier("linear-svm")[-1], LinearSVC)
    assert isinstance(frozen_classifier("kernel-svm")[-1], SVC)
    assert hasattr(frozen_classifier("linear"), "predict_proba")
    with pytest.raises(
        ValueError, match="classifier 'forest' is unknown; expected one of linear, linear-svm, kernel-svm"
    ):
        frozen_classifier("forest")


@pytest.mark.parametrize("name", FROZEN)
def test_c_can_be_set(name: str) -> None:
    assert DEFAULT_C[name] == frozen_classifier(name)[-1].C
    assert frozen_classifier(name, 3.0)[-1].C == 3

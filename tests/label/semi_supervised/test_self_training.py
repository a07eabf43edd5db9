import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from entourage.label import GraphTransduction
from entourage.label.semi_supervised import AugmentOptions
from entourage.label.semi_supervised import self_training as module
from entourage.label.semi_supervised.graph_methods import GraphConsistency, GraphPseudoLabel
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.network import compute_outputs
from entourage.label.semi_supervised.pseudo_labels import GraphFit, fit_graph_labels
from entourage.label.semi_supervised.self_training import SelfTrainingResult, self_train
from entourage.training import TrainingOptions

CPU = torch.device("cpu")
OPTIONS = AugmentOptions(
    n_neighbors=5,
    rounds=3,
    method_options=MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=10, ema_decay=0.9),
    training=TrainingOptions(epochs=2, learning_rate=0.01, workers=0, checkpoint_every=2),
)


def run_rounds(toys: ModuleType, options: AugmentOptions = OPTIONS, run_dir: Path | None = None) -> SelfTrainingResult:
    return self_train(
        toys.network(), toys.examples()[0], GraphTransduction(), options, CPU, run_dir=run_dir, progress=False
    )


def same_weights(one: torch.nn.Module, other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.state_dict().items())


def set_scores(monkeypatch: pytest.MonkeyPatch, *scores: float | None) -> None:
    """Replace the scores of the fitted graphs, first that of the untrained network."""
    remaining = list(scores)

    def scripted(*arguments: Any) -> Any:
        return fit_graph_labels(*arguments)._replace(score=remaining.pop(0))

    monkeypatch.setattr(module, "fit_graph_labels", scripted)


def test_a_round_plans_only_its_epochs(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    real = GraphConsistency.plan
    monkeypatch.setattr(GraphConsistency, "plan", lambda self, epoch: (planned.append(epoch), real(self, epoch))[1])
    run_rounds(toys, replace(OPTIONS, rounds=1))
    assert planned == [0, 0, 1]  # once more for the length of the schedule


def test_every_graph_is_labelled_with_the_passed_arguments(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "fit_graph_labels", lambda *args: (calls.append(args), fit_graph_labels(*args))[1])
    prior, labeller = np.full((30, 3), 1 / 3), GraphTransduction(n_neighbors=4, normalize=False)
    options = replace(OPTIONS, rounds=1, metric="euclidean")
    self_train(toys.network(), toys.examples()[0], labeller, options, CPU, prior=prior, progress=False)
    assert len(calls) == 2
    for _, _, used_labeller, used_options, used_prior in calls:
        assert (used_labeller.n_neighbors, used_labeller.normalize, used_options.metric) == (4, False, "euclidean")
        assert used_prior is prior


def test_all_rounds_run_unless_one_is_significantly_worse(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_scores(monkeypatch, 0.5, 0.6, 0.55, 0.9)  # a difference of one label is not significant
    result = run_rounds(toys, run_dir=tmp_path)
    assert [(round_.accepted, round_.held_out) for round_ in result.rounds] == [(True, 0.6), (True, 0.55), (True, 0.9)]
    assert same_weights(result.network, load_file(tmp_path / "round-3" / "model.safetensors"))
    assert not result.network.training
    assert result.features.shape == (30, 8)
    features = compute_outputs(result.network.body, toys.examples()[0].views, CPU).numpy()
    np.testing.assert_allclose(result.features, features, rtol=1e-5, atol=1e-6)
    assert all(0 < round_.confidence <= 1 and round_.seconds > 0 for round_ in result.rounds)


def test_a_worse_round_is_rejected_and_is_the_last(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_scores(monkeypatch, 0.5, 0.9, 0.2)
    result = run_rounds(toys, run_dir=tmp_path)
    assert [round_.accepted for round_ in result.rounds] == [True, False]
    accepted, rejected = (load_file(tmp_path / f"round-{number}" / "model.safetensors") for number in (1, 2))
    assert same_weights(result.network, accepted)
    assert not same_weights(result.network, rejected)
    assert not (tmp_path / "round-3").exists()
    examples = toys.examples()[0]
    features = compute_outputs(result.network.body, examples.views, CPU)
    np.testing.assert_allclose(result.features, features.numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(
        result.pseudo_labels.codes,
        fit_graph_labels(features, examples, GraphTransduction(), OPTIONS).pseudo_labels.codes,
    )


def test_scores_are_compared_with_the_best_so_far(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    set_scores(monkeypatch, 0.5, 0.9, 0.6, 0.3)  # significant only against the best
    assert [round_.accepted for round_ in run_rounds(toys).rounds] == [True, True, False]


def test_the_first_round_is_always_accepted(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    set_scores(monkeypatch, 1.0, 0.6, 0.0)
    assert [(round_.accepted, round_.held_out) for round_ in run_rounds(toys).rounds] == [(True, 0.6), (False, 0.0)]


def test_without_a_score_all_rounds_run(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    set_scores(monkeypatch, None, None, None)
    result = run_rounds(toys, replace(OPTIONS, rounds=2))
    assert [(round_.accepted, round_.held_out) for round_ in result.rounds] == [(True, None), (True, None)]


def test_the_seed_determines_the_result(toys: ModuleType) -> None:
    torch.manual_seed(1)
    one = run_rounds(toys)
    torch.manual_seed(2)
    same = run_rounds(toys)
    other = run_rounds(toys, replace(OPTIONS, method_options=replace(OPTIONS.method_options, seed=5)))
    assert same_weights(one.network, same.network.state_dict())
    assert np.array_equal(one.pseudo_labels.confidence, same.pseudo_labels.confidence)
    assert not same_weights(one.network, other.network.state_dict())


def test_the_initial_network_keeps_its_weights(toys: ModuleType) -> None:
    network = toys.network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    self_train(network, toys.examples()[0], GraphTransduction(), replace(OPTIONS, rounds=1), CPU, progress=False)
    assert same_weights(network, before)


@pytest.mark.parametrize("pseudo_label_mode", ["hard", "soft", "weighted", None])
def test_each_round_trains_with_the_requested_method(
    toys: ModuleType, pseudo_label_mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_scores(monkeypatch, 0.1, 0.2, 0.3)
    tasks: list[Any] = []
    train = module.train
    monkeypatch.setattr(
        module, "train", lambda task, *args, **kwargs: (tasks.append(task), train(task, *args, **kwargs))
    )
    changes: Any = (
        {"method": "consistency"}
        if pseudo_label_mode is None
        else {"method": "labels", "pseudo_label_mode": pseudo_label_mode, "pool_labels": pseudo_label_mode == "hard"}
    )
    run_rounds(toys, replace(OPTIONS, rounds=2, **changes))
    assert {type(task) for task in tasks} == {GraphConsistency if pseudo_label_mode is None else GraphPseudoLabel}
    assert [task.options.seed for task in tasks] == [1, 2]  # the order of the images differs between rounds
    if pseudo_label_mode is not None:
        assert {task.pseudo_label_mode for task in tasks} == {pseudo_label_mode}
        assert {task.pool_labels for task in tasks} == {pseudo_label_mode == "hard"}


@pytest.mark.parametrize("balance", [False, True])
def test_class_frequencies_are_imposed_only_with_balance(
    toys: ModuleType, balance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[GraphConsistency] = []
    train = module.train
    monkeypatch.setattr(
        module, "train", lambda task, *args, **kwargs: (tasks.append(task), train(task, *args, **kwargs))
    )
    examples, _ = toys.examples()
    examples.codes[6] = 0  # three of the first class, two of each other
    options = replace(OPTIONS, rounds=1, balance=balance)
    result = self_train(toys.network(), examples, GraphTransduction(), options, CPU, progress=False)
    assert result.labeller.class_priors == ("empirical" if balance else None)
    if balance:
        torch.testing.assert_close(tasks[0].class_priors, torch.tensor([3.0, 2.0, 2.0]) / 7)
    else:
        assert tasks[0].class_priors is None


def test_class_priors_are_positive_for_classes_without_a_label(toys: ModuleType) -> None:
    examples, _ = toys.examples()  # two of each of three classes
    examples.codes[examples.codes == 2] = -1
    torch.testing.assert_close(module.given_class_priors(examples), torch.tensor([3.0, 3.0, 1.0]) / 7)


class StoppedError(Exception):
    """Simulates a kill."""


@pytest.mark.parametrize("stop_at", [3, 9])  # updates in total: in the first and in the second round
def test_interrupted_rounds_are_resumed_with_the_same_result(
    toys: ModuleType, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_scores(monkeypatch, *[0.5] * 9)
    complete = run_rounds(toys, replace(OPTIONS, rounds=2))
    n_updates, after_step = [0], GraphConsistency.after_step

    def interrupted(self: GraphConsistency, step: int) -> None:
        after_step(self, step)
        n_updates[0] += 1
        if n_updates[0] == stop_at:
            raise StoppedError

    monkeypatch.setattr(GraphConsistency, "after_step", interrupted)
    with pytest.raises(StoppedError):
        run_rounds(toys, replace(OPTIONS, rounds=2), tmp_path)
    n_updates[0] = -100
    continued = run_rounds(toys, replace(OPTIONS, rounds=2), tmp_path)
    assert n_updates[0] + 100 == 12 - stop_at + 1  # from the last checkpoint, one update before
    assert same_weights(continued.network, complete.network.state_dict())
    assert np.array_equal(continued.pseudo_labels.confidence, complete.pseudo_labels.confidence)
    assert len(continued.rounds) == 2


def test_a_resumed_round_uses_the_labels_it_was_started_with(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, rounds=1)
    complete = run_rounds(toys, options, tmp_path)
    monkeypatch.setattr(
        module,
        "fit_graph_labels",
        lambda *_: GraphFit(toys.pseudo_labels([0] * 30, [1.0] * 30), 0.5, GraphTransduction()),
    )
    again = run_rounds(toys, options, tmp_path)  # with other labels the training would raise an error
    assert same_weights(again.network, complete.network.state_dict())


def test_another_graph_is_another_run(toys: ModuleType, tmp_path: Path) -> None:
    options = replace(OPTIONS, rounds=1)
    run_rounds(toys, options, tmp_path)
    with pytest.raises(ValueError, match="round-1 holds a run with pseudo-labels of another"):
        run_rounds(toys, replace(options, n_neighbors=6), tmp_path)
    run_rounds(toys, options, tmp_path)  # can still be resumed


def test_errors_of_resumed_rounds_name_the_folder_of_all_rounds(toys: ModuleType, tmp_path: Path) -> None:
    options = replace(OPTIONS, rounds=1)
    run_rounds(toys, options, tmp_path)
    advice = f"delete the folder {re.escape(str(tmp_path))} to start from scratch$"
    with pytest.raises(ValueError, match=rf"round-1 holds a run with epochs \d+, now 99; .*, or {advice}"):
        run_rounds(toys, replace(options, training=replace(options.training, epochs=99)), tmp_path)
    (tmp_path / "round-1" / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=rf"round-1.checkpoint\.safetensors: .*; {advice}"):
        run_rounds(toys, options, tmp_path)


def test_short_rounds_have_shorter_warm_ups(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules: list[TrainingOptions] = []
    tasks: list[GraphConsistency] = []
    real = module.train

    def recorded(task: GraphConsistency, schedule: TrainingOptions, *args: Any, **kwargs: Any) -> Any:
        schedules.append(schedule)
        tasks.append(task)
        return real(task, schedule, *args, **kwargs)

    monkeypatch.setattr(module, "train", recorded)
    run_rounds(toys, replace(OPTIONS, rounds=2, training=replace(OPTIONS.training, epochs=5, warmup_steps=50)))
    assert [schedule.warmup_steps for schedule in schedules] == [3, 3]  # one fifth of 15 steps
    assert [task.warmup_steps for task in tasks] == [5, 5]  # one third
    assert schedules[0].seed != schedules[1].seed  # views differ between rounds

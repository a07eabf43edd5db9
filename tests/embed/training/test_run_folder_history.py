import json
from pathlib import Path

from entourage.embed.training.run_folder import read_training_history


def test_curves_contain_all_stages_in_order(tmp_path: Path) -> None:
    values = {"stage-1": [0.1], "stage-2": [0.2, 0.3], "stage-10": [0.4]}
    for stage, recalls in values.items():
        lines = [{"step": 1, "losses": {"loss": 3.0}}]
        lines += [{"step": 2, "metrics": {"recall@1": value, "training recall@1": value + 0.5}} for value in recalls]
        (tmp_path / stage).mkdir()
        (tmp_path / stage / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = read_training_history(tmp_path)
    assert curves == {"validation": [0.1, 0.2, 0.3, 0.4], "training": [0.6, 0.7, 0.8, 0.9]}


def test_run_without_evaluations_has_no_curves(tmp_path: Path, trained: Path) -> None:
    assert read_training_history(tmp_path) == {}
    curves = read_training_history(trained / "training" / "member-1")
    assert {name: len(values) for name, values in curves.items()} == {"validation": 4, "training": 4}

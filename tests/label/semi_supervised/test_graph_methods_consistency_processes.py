"""Two processes use the same mean prediction, and an interrupted run of both resumes exactly."""

import json
from pathlib import Path

from tests.training.runs import run_program

WORKER = Path(__file__).with_name("worker.py")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_two_processes_agree_and_resume_exactly(tmp_path: Path) -> None:
    # The network has batch normalisation, whose statistics differ between processes unless they are broadcast.
    code, output = run_program(*TWO, str(WORKER), str(tmp_path))
    assert code == 0, output
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["steps"] > 9
    assert first["same"]
    assert first["means"][0] == first["means"][1]
    assert first["spread"] > 1e-3  # the mean has changed

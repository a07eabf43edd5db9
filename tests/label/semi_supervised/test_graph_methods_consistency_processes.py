"""Two processes hold the network's answers to the same priors, and a stopped run of both ends as if left alone."""

import json
from pathlib import Path

from tests.training.runs import run_program

WORKER = Path(__file__).with_name("worker.py")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_two_processes_agree_and_resume_exactly(tmp_path: Path) -> None:
    # A network with batch normalisation: its statistics are each process's own unless they are shared.
    code, said = run_program(*TWO, str(WORKER), str(tmp_path))
    assert code == 0, said
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["steps"] > 9
    assert first["same"]
    assert first["answers"][0] == first["answers"][1]
    assert first["spread"] > 1e-3  # the answers did move

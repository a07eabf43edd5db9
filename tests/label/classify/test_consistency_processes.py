"""Two processes hold the network's answers to the same shares, and a stopped run of both ends as if left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parents[3]
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_two_processes_agree_and_resume_exactly(tmp_path: Path) -> None:
    # A network with batch normalisation: its statistics are each process's own unless they are shared.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, *TWO, str(WORKER), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        try:
            said = program.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            program.terminate()  # the launcher ends its processes, which a kill of it would leave behind
            raise
    assert program.returncode == 0, said
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["steps"] > 9
    assert first["same"]
    assert first["answers"][0] == first["answers"][1]
    assert first["spread"] > 1e-3  # the answers did move

from pathlib import Path

import pytest
import torch

from entourage.compute import has_bfloat16_instructions, resolve_device


def test_auto_is_cuda_if_available_and_otherwise_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")


def test_devices_are_returned() -> None:
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "meta", "cuda:-1"])
def test_unknown_devices_raise(name: str) -> None:
    with pytest.raises(ValueError, match=r"^device .* expected 'auto', 'cpu'"):
        resolve_device(name)


def test_missing_devices_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"device 'cuda:1' is not available; expected .*here: cpu, cuda:0"):
        resolve_device("cuda:1")


def test_instructions_for_bfloat16_are_read_from_the_flags_of_the_processor(tmp_path: Path) -> None:
    for name, flags, expected in (("new", "fpu avx512_bf16 sse", True), ("old", "fpu avx2", False)):
        (tmp_path / name).write_text(f"flags\t: {flags}\n")
        assert has_bfloat16_instructions(str(tmp_path / name)) is expected
    assert not has_bfloat16_instructions(str(tmp_path / "missing"))

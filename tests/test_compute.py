import pytest
import torch

from entourage.compute import resolve_device


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

import copy

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from entourage.training.accelerator import accelerated, prepared_model, reseed, resolve_precision

CPU = torch.device("cpu")


def test_auto_precision_on_a_cpu_is_float32() -> None:
    assert resolve_precision("auto", CPU) == "float32"
    assert resolve_precision("bfloat16", CPU) == "bfloat16"
    with pytest.raises(ValueError, match="precision is 'float16'; expected"):
        resolve_precision("float16", CPU)


@pytest.mark.parametrize(("new", "expected"), [(True, "bfloat16"), (False, "float16")])
def test_auto_precision_on_a_gpu_depends_on_its_support(
    monkeypatch: pytest.MonkeyPatch, new: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: new)
    assert resolve_precision("auto", torch.device("cuda")) == expected
    assert resolve_precision("float32", torch.device("cuda")) == "float32"


def test_precision_can_change_between_trainings() -> None:
    for precision, mixed in (("float32", "no"), ("bfloat16", "bf16"), ("float32", "no")):
        with accelerated("cpu", precision, False) as accelerator:  # type: ignore[arg-type]
            assert accelerator.mixed_precision == mixed
            assert accelerator.device == CPU
            assert accelerator.num_processes == 1


def test_accelerator_state_is_kept_for_equal_settings() -> None:
    with accelerated("cpu", "float32", False) as accelerator:
        state = accelerator.state
    own = Accelerator(cpu=True, mixed_precision="no")
    with accelerated("cpu", "float32", False):
        assert own.state.__dict__ is state.__dict__
        assert own.device == CPU


def test_generators_and_matmul_precision_are_restored() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    before = torch.get_float32_matmul_precision()
    torch.manual_seed(1)
    with accelerated("cpu", "float32", False):
        torch.manual_seed(2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_float32_matmul_precision() == before


def test_reseed_fixes_random_numbers() -> None:
    draws = []
    with accelerated("cpu", "float32", False):
        for key in ([1, 2, 3], [1, 3, 2], [1, 2, 3], [1, 2]):
            reseed(CPU, key)
            draws.append(tuple(torch.rand(2).tolist()))
    assert draws[0] == draws[2]
    assert len(set(draws)) == 3


def test_prepared_model_uses_mixed_precision_and_returns_float32() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    x, seen = torch.randn(3, 4), []
    model[0].register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    before, state = model(x), dict(model.__dict__)
    with accelerated("cpu", "bfloat16", False) as accelerator, prepared_model(accelerator, model) as mixed:
        result = mixed(x)
        assert result.dtype == torch.float32
        assert not torch.equal(result, before)
        torch.testing.assert_close(result, before, atol=0.05, rtol=0.05)  # bfloat16 has 8 bits
    assert seen == [torch.float32, torch.bfloat16]
    assert torch.equal(model(x), before)
    assert model.__dict__.keys() == state.keys()
    assert torch.equal(copy.deepcopy(model)(x), before)


def test_model_can_be_prepared_again() -> None:
    model = nn.Linear(2, 2)
    for _ in range(2):
        with accelerated("cpu", "bfloat16", False) as accelerator, prepared_model(accelerator, model) as mixed:
            assert not torch.equal(
                mixed(torch.full((1, 2), 1 / 3)), nn.Linear.forward(model, torch.full((1, 2), 1 / 3))
            )


def test_custom_forward_is_restored() -> None:
    model = nn.Linear(2, 2)
    model.forward = lambda x: x + 1  # type: ignore[method-assign]
    with accelerated("cpu", "bfloat16", False) as accelerator, prepared_model(accelerator, model):
        pass
    assert torch.equal(model(torch.zeros(1)), torch.ones(1))

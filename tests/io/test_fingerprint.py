from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from entourage.cluster.sampling.augmentation import ImageAugmentation, unaugmented_image
from entourage.io.fingerprint import digest, fingerprint, transform_config


def test_digest_depends_on_values_types_shapes_and_order() -> None:
    one = torch.arange(6, dtype=torch.float32)
    others = [one + 1, one.double(), one.reshape(2, 3), one.flip(0), one[:0], one.bfloat16()]
    digests = [digest(one), *(digest(other) for other in others), digest(one, one)]
    assert len(set(digests)) == len(digests)
    assert digest(one.clone()) == digest(one)
    assert digest(torch.arange(12, dtype=torch.float32)[::2] / 2) == digest(one)  # in any memory layout


def test_digest_of_members_and_sizes_distinguishes_partitions() -> None:
    members, sizes = torch.arange(1, 7), torch.tensor([2, 3, 1])
    assert digest(members, sizes) == digest(members.clone(), sizes.clone())
    assert digest(members, torch.tensor([2, 1, 3])) != digest(members, sizes)


@dataclass(frozen=True)
class _Wrapper:
    inner: object


def test_transform_config_contains_options_and_no_addresses() -> None:
    assert transform_config(ImageAugmentation(flip=0.2)) != transform_config(ImageAugmentation(flip=0.3))
    assert transform_config(_Wrapper(unaugmented_image)) == {"name": "_Wrapper", "inner": "unaugmented_image"}
    assert transform_config(None) is None
    assert transform_config(_Wrapper((1, object()))) == {"name": "_Wrapper", "inner": [1, "object"]}
    json.dumps(transform_config(ImageAugmentation()))


VALUES = np.arange(6, dtype=np.float32)


def test_fingerprints_differ_by_values_type_shape_and_order() -> None:
    others = [VALUES + 1, VALUES.astype(np.float64), VALUES.reshape(2, 3), VALUES[::-1], VALUES[:0], VALUES.tobytes()]
    sequences = [(VALUES,), *((other,) for other in others), (VALUES, VALUES), (), ("",), (b"",), ("ab",), ("a", "b")]
    digests = [fingerprint(*values) for values in sequences]  # type: ignore[arg-type]
    assert len(set(digests)) == len(digests)


def test_fingerprints_of_tensors_and_arrays_agree_in_any_memory_order() -> None:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = fingerprint(table)
    assert fingerprint(torch.from_numpy(table)) == expected
    assert fingerprint(torch.from_numpy(table).requires_grad_()) == expected
    assert fingerprint(np.asfortranarray(table)) == expected
    assert fingerprint(torch.from_numpy(np.asfortranarray(table))) == expected
    assert fingerprint(np.repeat(table, 2, axis=1)[:, ::2]) == expected
    assert fingerprint(table.astype(">f4")) == expected
    assert fingerprint(np.float32(3)) == fingerprint(torch.tensor(3.0)) != fingerprint(torch.tensor([3.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.int64, torch.uint8, torch.complex64])
def test_fingerprints_accept_all_tensor_types_and_empty_tensors(dtype: torch.dtype) -> None:
    full, empty = torch.ones(3, dtype=dtype), torch.ones(0, 3, dtype=dtype)
    assert fingerprint(full) != fingerprint(empty) != fingerprint(empty.T)


def test_fingerprints_of_strings_and_bytes_differ_as_do_their_boundaries() -> None:
    assert fingerprint("ab") != fingerprint(b"ab")
    assert fingerprint("a", "b") != fingerprint("ab") != fingerprint("ab", "")
    assert fingerprint("\udce9") != fingerprint("\udcea")  # file names need not be UTF-8
    assert fingerprint(np.array(["owl", "crow"])) != fingerprint(np.array(["owl", "cro"]))


def test_fingerprints_are_stable_and_have_the_requested_size() -> None:
    assert fingerprint("run", VALUES, b"\0") == fingerprint("run", VALUES, b"\0")
    assert [len(fingerprint("run", size=size)) for size in (1, 8, 16)] == [2, 16, 32]
    assert fingerprint("run") == "456384d17ffb1e15"


@pytest.mark.parametrize("value", [None, {"a": 1}, np.array([None, "a"], dtype=object), object()])
def test_fingerprints_of_objects_raise(value: object) -> None:
    with pytest.raises(TypeError, match="expected a tensor"):
        fingerprint(value)  # type: ignore[arg-type]

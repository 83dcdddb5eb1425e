"""Tensors are written as they are, whatever memory they share."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.tensors import load_tensors, save_tensors


def test_tensors_that_share_memory_come_back_each_as_it_was(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "whole": base,
        "again": base,
        "row": base[1],
        "turned": base.t(),
        "stretched": base[:1].expand(5, 4),
        "none": torch.empty(0, 4),
        "none too": torch.empty(0, dtype=torch.int8),
        "weight": torch.nn.Parameter(torch.ones(2)),
    }
    before = {name: value.clone() for name, value in tensors.items()}
    save_tensors(tmp_path / "a.safetensors", tensors, {"x": [1]})
    found, meta = load_tensors(tmp_path / "a.safetensors")
    assert meta == {"x": [1]}
    assert found.keys() == tensors.keys()
    for name, value in before.items():
        assert torch.equal(found[name], value), name
        assert found[name].dtype == value.dtype
    assert torch.equal(base, before["whole"])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
def test_any_parts_of_one_tensor_come_back(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]]
) -> None:
    base, path = torch.arange(10), tmp_path_factory.getbasetemp() / "parts.safetensors"
    tensors = {str(number): base[min(part) : max(part)] for number, part in enumerate(parts)}
    save_tensors(path, tensors, {})
    found, _ = load_tensors(path)
    assert all(torch.equal(found[name], value) for name, value in tensors.items())

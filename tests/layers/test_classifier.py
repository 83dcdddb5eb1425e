"""The classifier of pseudo-classes, and how items of any number of parts are brought to one number of positions."""

import pytest
import torch
from torch.nn import functional

from in2r.errors import InputError
from in2r.layers.classifier import PseudoClassifier, to_positions


def test_fewer_parts_stand_in_the_middle() -> None:
    parts = torch.tensor([[[1.0], [2.0], [9.0]], [[1.0], [2.0], [3.0]]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = to_positions(parts, mask, 5)[..., 0]
    assert found.tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 0]]  # floor(3 / 2) and floor(2 / 2) zeros before them


@pytest.mark.parametrize("length", [6, 7, 11])
def test_more_parts_are_interpolated_as_pytorch_does(length: int) -> None:
    parts = torch.randn(3, length, 2, generator=torch.Generator().manual_seed(0))
    wanted = functional.interpolate(parts.transpose(1, 2), size=5, mode="linear", align_corners=False).transpose(1, 2)
    torch.testing.assert_close(to_positions(parts, None, 5), wanted, atol=1e-5, rtol=0)
    longer = torch.cat([parts, torch.full((3, 2, 2), 99.0)], 1)  # padding of a longer caption in the batch
    mask = (torch.arange(length + 2) < length).expand(3, -1)
    torch.testing.assert_close(to_positions(longer, mask, 5), wanted, atol=1e-5, rtol=0)


def test_as_many_parts_stay_and_none_are_zeros() -> None:
    parts = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(to_positions(parts, None, 4), parts)
    assert not to_positions(parts, torch.zeros(2, 4, dtype=torch.bool), 4).any()


def test_the_classifier_reads_the_vector_or_the_parts() -> None:
    vector, parts = torch.randn(2, 3), torch.randn(2, 4, 3)
    by_vector, by_parts = PseudoClassifier(3, 5, 7), PseudoClassifier(3, 5, 7, positions=4)
    wanted = by_vector.classes(functional.relu(by_vector.hidden(vector)))
    assert torch.equal(by_vector(vector, parts), wanted)
    wanted = by_parts.classes(functional.relu(by_parts.hidden(parts.reshape(2, 12))))
    torch.testing.assert_close(by_parts(vector, parts), wanted)
    with pytest.raises(InputError, match=r"`method.positions` .* set method.positions=0, or model.backbone=sgr"):
        by_parts(vector)

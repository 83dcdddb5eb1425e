"""Evidence of other pairs: a caption is like captions of similar images, an image like images of similar captions.

Legend: R = reference pairs, k = neighbours of a query among them, P = pairs that are judged, T = `temperature`. Vectors
are `centred`: less their mean and of unit norm, so that an inner product is a cosine.
"""

import torch
from torch import Tensor

from in2r.evidence.vectors import BLOCK_BYTES, blocks, check_index, check_matrix, check_positive, check_whole
from in2r.transfer import full_precision

COPIES = 3
"""Of a block of cosines: the cosines, and what the search keeps."""
GATHERED_BYTES = 2**23
"""Of neighbours' vectors that are copied together: within a core's cache it takes half the time."""


@torch.no_grad()
def nearest_references(
    queries: Tensor,
    references: Tensor,
    query_group: Tensor,
    reference_group: Tensor,
    neighbors: int,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[Tensor, Tensor]:
    """Return the references of largest cosine to each query, those of its own group left out.

    Args:
        queries: (q, d), `centred`.
        references: (R, d), `centred`.
        query_group: (q,) int64, such as the number of the image; copies of an image share theirs.
        reference_group: (R,) int64.
        neighbors: k, at least 1; all references if there are fewer.
        block_bytes: memory beside the result, unless one query needs more.

    Returns:
        (q, k) int64 references, the nearest first, and (q, k) their cosines; -inf where the own group had to be taken
        because there was no other reference.

    Raises:
        ValueError: if a shape does not fit.
    """
    check_whole(neighbors=neighbors)
    check_matrix("queries", queries)
    check_matrix("references", references, queries.shape[1])
    check_index("query_group", query_group, len(queries))
    check_index("reference_group", reference_group, len(references))
    k = min(neighbors, len(references))
    sorted_groups, order = reference_group.sort()
    found = torch.empty(len(queries), k, dtype=torch.int64, device=queries.device)
    cosine = queries.new_empty(len(queries), k)
    for rows in blocks(len(queries), COPIES * len(references) * queries.element_size(), block_bytes):
        with full_precision(queries.device):
            cosines = queries[rows] @ references.T
        cosines[_pairs_of_a_group(query_group[rows], order, sorted_groups)] = -torch.inf
        cosine[rows], found[rows] = cosines.topk(k)
    return found, cosine


def _pairs_of_a_group(groups: Tensor, order: Tensor, sorted_groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and references of one group; references are given in the order of their groups."""
    first = torch.searchsorted(sorted_groups, groups)
    count = torch.searchsorted(sorted_groups, groups, right=True) - first
    query = torch.arange(len(groups), device=groups.device).repeat_interleave(count)
    place = torch.arange(len(query), device=groups.device) - (count.cumsum(0) - count)[query]
    return query, order[first[query] + place]


@torch.no_grad()
def cosines_with(judged: Tensor, references: Tensor, near: Tensor, block_bytes: int = GATHERED_BYTES) -> Tensor:
    """Return the cosine of each judged item with each of its neighbours' items on the same side, (P, k).

    Args:
        judged: (P, d), the items that are judged, `centred`.
        references: (R, d), the items of the reference pairs on the same side, `centred`.
        near: (P, k) int64 in [0, R), neighbours by the other side.
        block_bytes: memory beside the result, unless one pair needs more.

    Raises:
        ValueError: if a shape does not fit.
    """
    check_positive(block_bytes=block_bytes)
    check_matrix("judged", judged)
    check_matrix("references", references, judged.shape[1])
    if near.ndim != 2 or len(near) != len(judged):
        raise ValueError(f"near must be ({len(judged)}, neighbours), got {tuple(near.shape)}")
    cosine = judged.new_empty(near.shape)
    for rows in blocks(len(judged), (near.shape[1] + 1) * judged.shape[1] * judged.element_size(), block_bytes):
        with full_precision(judged.device):
            cosine[rows] = (references[near[rows]] @ judged[rows, :, None]).squeeze(2)
    return cosine


@torch.no_grad()
def agreement(cosine: Tensor, weight: Tensor, temperature: float = 0.1, floor: float = 1e-6) -> Tensor:
    """Return how much the neighbours of one side of a pair support its other side.

    log(floor + sum_r w_r e^((c_r - 1) / T) / sum_r w_r), c_r = cosine of the judged item and that of neighbour r.

    Args:
        cosine: (P, k), as `cosines_with` returns it.
        weight: (P, k) w >= 0.
        temperature: T > 0.
        floor: > 0, what counts as no support at all.

    Returns:
        (P,); NaN where no neighbour has weight: nobody can be asked.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, floor=floor)
    if cosine.shape != weight.shape:
        raise ValueError(f"weight must have the cosines' shape {tuple(cosine.shape)}, got {tuple(weight.shape)}")
    total = weight.sum(dim=1)
    mean = (weight * ((cosine - 1) / temperature).exp()).sum(dim=1) / total
    return torch.where(total > 0, (floor + mean).log(), torch.nan)


def closeness(cosine: Tensor, temperature: float = 0.1) -> Tensor:
    """Return e^((c - the largest c) / T) of each row (q, k): weights of neighbours; 0 where c is -inf."""
    return ((cosine - cosine.amax(dim=1, keepdim=True)) / temperature).exp().nan_to_num(0.0)

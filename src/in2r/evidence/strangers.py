"""Evidence of strangers: a pair that fits is far above random images and captions.

Legend: P = pairs that are judged, S = strangers (random pairs), T = `temperature`; v, u = image and caption in a space
where an inner product is a similarity.
"""

import torch
from torch import Tensor

from in2r.evidence.vectors import BLOCK_BYTES, blocks, check_index, check_matrix, check_positive
from in2r.transfer import full_precision

COPIES = 3
"""Of a block of similarities to strangers: the similarities, a mask, and what the sum keeps."""


@torch.no_grad()
def lead_over_strangers(
    images: Tensor,
    texts: Tensor,
    own_groups: Tensor,
    strange_images: Tensor,
    strange_texts: Tensor,
    strange_group: Tensor,
    temperature: float = 0.05,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return how far each pair is above strangers, in both directions.

    log [e^(v·u / T) / mean_s e^(v·u_s / T)] + log [e^(v·u / T) / mean_s e^(v_s·u / T)]: but for constants, the log
    softmax probabilities of the caption among the strangers' and of the image among theirs. So a caption that fits
    everything gains nothing by fitting its image.

    Args:
        images: (P, d), the image of each pair.
        texts: (P, d), its caption.
        own_groups: (P, g) int64; strangers of these groups are not asked about the pair.
        strange_images: (S, d).
        strange_texts: (S, d).
        strange_group: (S,) int64, such as the number of the image.
        temperature: T > 0.
        block_bytes: memory beside the result, unless one pair needs more.

    Returns:
        (P,); NaN where no stranger is left.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, block_bytes=block_bytes)
    check_matrix("images", images)
    check_matrix("texts", texts, images.shape[1])
    check_matrix("strange_images", strange_images, images.shape[1])
    check_matrix("strange_texts", strange_texts, images.shape[1])
    check_index("strange_group", strange_group, len(strange_images))
    if own_groups.ndim != 2 or len(own_groups) != len(images) or len(texts) != len(images):
        raise ValueError(f"images, texts and own_groups must be of {len(images)} pairs, got {tuple(own_groups.shape)}")
    lead = images.new_empty(len(images))
    for rows in blocks(len(images), COPIES * (len(strange_group) + 1) * images.element_size(), block_bytes):
        v, u = images[rows], texts[rows]
        own = (own_groups[rows, :, None] == strange_group).any(dim=1)
        asked = (~own).sum(dim=1)
        with full_precision(v.device):
            lead[rows] = 2 * (v * u).sum(dim=1) / temperature
            for one, strange in ((v, strange_texts), (u, strange_images)):
                similarity = (one @ strange.T).div_(temperature).masked_fill_(own, -torch.inf)
                lead[rows] -= similarity.logsumexp(dim=1) - asked.to(lead).log()
        lead[rows] = lead[rows].masked_fill(asked == 0, torch.nan)
    return lead

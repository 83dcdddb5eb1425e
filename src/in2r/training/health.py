"""The health record of an epoch: means of what the steps show, without a synchronisation per step."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from in2r.data.noise import NoiseIndex
from in2r.memory import Neighbors
from in2r.methods import Batch, LookUp, Step
from in2r.metrics import auroc, calibration_error, precision_recall
from in2r.processes import ALONE, Processes

PENDING = 2000
"""Values that wait for a look at the device; some fifty steps."""


class Means:
    """Running means of named values; what lies on a device is fetched many steps at a time.

    Sums are taken on the host, one value after the other, so that they do not depend on when they were fetched.
    A name that was added as None alone is not known, and so is its mean.
    """

    def __init__(self, state: dict[str, list[float]] | None = None) -> None:
        self._sums = {name: [*sums] for name, sums in (state or {}).items()}
        self._waiting: list[tuple[str, Tensor | float | None]] = []

    def add(self, name: str, value: Tensor | float | None) -> None:
        """Add a scalar, or None where the value is not known."""
        self._waiting.append((name, value.detach() if isinstance(value, Tensor) else value))
        if len(self._waiting) >= PENDING:
            self._fetch()

    def _fetch(self) -> None:
        on_device = [value for _, value in self._waiting if isinstance(value, Tensor)]
        fetched = iter(torch.stack(on_device).tolist() if on_device else [])
        for name, value in self._waiting:
            sums = self._sums.setdefault(name, [0.0, 0.0])
            if value is None:
                continue
            sums[0] += next(fetched) if isinstance(value, Tensor) else value
            sums[1] += 1
        self._waiting = []

    def read(self) -> dict[str, float | None]:
        """Return the mean of each name, None where no value of it is known."""
        return {name: total / count if count else None for name, (total, count) in self.state().items()}

    def state(self) -> dict[str, list[float]]:
        """Return what a checkpoint keeps, sum and count of each name; exact, since doubles survive JSON."""
        self._fetch()
        return {name: [*sums] for name, sums in self._sums.items()}


class Truth:
    """What is known of injected noise; seen by the record and by nothing that trains.

    Args:
        noise: the index that was applied.
        image_of_caption: (N,) the images as the files say.
        device: where the training steps run.
    """

    def __init__(self, noise: NoiseIndex, image_of_caption: Tensor, device: torch.device) -> None:
        self.original = image_of_caption.to(device)
        self.clean = torch.as_tensor(noise.index) == image_of_caption
        self.device = device
        self._written_for = _captions_of_images(self.original, 1 + int(max(noise.index.max(), self.original.max())))

    def same_image(self, found: LookUp) -> dict[str, Tensor]:
        """Return the share of neighbours that come from the query's original image, per direction.

        Image queries: entries stored with the very image. Text queries: entries whose caption was written for
        the image that the query was written for.
        """
        queries = found.batch
        image = found.near_images.groups == queries.groups[:, None]
        text = self.original[found.near_texts.ids.clamp(min=0)] == self.original[queries.pairs][:, None]
        return {
            "neighbors_same_image_i2t": _share(image, found.near_images),
            "neighbors_same_image_t2i": _share(text, found.near_texts),
        }

    def hidden(self, noisy: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return what `noise.hide_original` takes away from the queries: see `Batch.hidden`.

        An image query's original image is itself; a text query's is the one that its caption was written for. Hidden
        is every entry with that image, and every entry with a caption that was written for it.
        """
        images = {"image": noisy.groups, "text": self.original[noisy.pairs]}
        return {by: (image, self._written_for[image]) for by, image in images.items()}


def _captions_of_images(image_of_caption: Tensor, images: int) -> Tensor:
    """Return (images, n) int64, the captions of each image in a row, filled up with -1."""
    order = image_of_caption.argsort(stable=True)
    counts = torch.bincount(image_of_caption, minlength=images)
    table = image_of_caption.new_full((len(counts), int(counts.max())), -1)
    within = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[image_of_caption[order]]
    table[image_of_caption[order], within] = order
    return table


def _share(hits: Tensor, near: Neighbors) -> Tensor:
    """Return the share of hits (B, K) among the neighbours; places left empty by exclusion are none."""
    found = near.scores.isfinite()
    return (hits & found).sum() / found.sum().clamp(min=1)


def gradient_norms(encoder: nn.Module, step: Step, processes: Processes = ALONE) -> dict[str, Tensor]:
    """Return the norm of each named loss's own gradient on the encoders (`total` aside).

    A loss that is summed over the batch outweighs one that is averaged, whatever their values; after clipping
    only the shares of their directions count. Nothing is accumulated; the step can still be taken.
    """
    weights = [weight for weight in encoder.parameters() if weight.requires_grad]
    norms = {}
    for name, loss in step.losses.items():
        if name == "total" or not loss.requires_grad:
            continue
        parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        if processes.count > 1:
            parts = tuple(None if part is None else processes.mean(part) for part in parts)
        squares = [part.square().sum() for part in parts if part is not None]
        norms[name] = torch.stack(squares).sum().sqrt()
    return norms


def record_step(means: Means, net: str, step: Step, truth: Truth | None) -> None:
    """Add one step of one network to the epoch's means."""
    for name, value in step.losses.items():
        if step.of == "net" or name != "total":
            means.add(f"loss_{name}_{net}", value)
    for name, number in step.notes.items():
        means.add(f"{name}_{net}", number)
    if step.found is not None and truth is not None:
        for name, share in truth.same_image(step.found).items():
            means.add(f"{name}_{net}", share)


def partition_truth(
    losses: Mapping[str, Tensor], clean: Tensor, prob: Tensor | None, pairs: Tensor, truth: Truth
) -> dict[str, Any]:
    """Compare a partition with the truth.

    Args:
        losses: name → (n,).
        clean: (N,) bool, which pairs are taken for clean.
        prob: (N,) clean probabilities; None: there are none.
        pairs: (n,) int64, the pairs that are trained on.
        truth: which of them are mismatched.

    Returns:
        AUROC of each loss, precision and recall of the clean pairs; of the probabilities their calibration error, and
        the noise rate that they say less the true one.
    """
    really = truth.clean[pairs].numpy()
    figures: dict[str, Any] = {}
    if 0 < really.sum() < len(really):
        for name, values in losses.items():
            figures[f"auroc_{name}"] = auroc(-values.numpy(), really)
    precision, recall = precision_recall(clean[pairs].numpy(), really)
    if prob is not None:
        p = prob[pairs].double().numpy()
        figures["calibration_error"] = calibration_error(p, really)
        figures["noise_rate_error"] = float(really.mean() - p.mean())
    return {**figures, "partition_precision": precision, "partition_recall": recall}

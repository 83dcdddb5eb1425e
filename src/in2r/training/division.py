"""Before an epoch of the main phase the method observes all training pairs and divides them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from in2r.errors import InputError, MethodError
from in2r.methods import Division, Method, Net, Now, Seen
from in2r.methods.division import loss_counts
from in2r.models.base import Items
from in2r.models.encode import encode_images, encode_texts, evaluating
from in2r.runs.settings import RunConfig
from in2r.seeds import torch_generator
from in2r.training.health import Means, Truth, partition_truth
from in2r.training.pairs import TrainingData
from in2r.training.returned import require_divisions, require_observed

log = logging.getLogger(__name__)

CHUNK = 16
"""Batches whose captions are encoded together."""

IMAGES_KEPT = 2**30
"""Bytes: so many images are encoded once for all their pairs (half a million at D = 512); of more, those of a chunk are
encoded when their pairs are observed, an image as often as it has captions in different chunks."""

Observe = Callable[[Net, Items, Items, Tensor], Mapping[str, Tensor] | None]
"""as `Method.observe`"""


class Divider:
    """Makes the divisions of a run.

    Args:
        data: the training pairs.
        method: observes and divides them.
        config: the run's settings.
        truth: of injected noise, for the record alone; None where none was injected.
    """

    def __init__(self, data: TrainingData, method: Method, config: RunConfig, truth: Truth | None) -> None:
        self.data, self.method, self.config, self.truth = data, method, config, truth
        self._said: set[str] = set()

    def divide(self, nets: Mapping[str, Net], now: Now, epoch: int) -> dict[str, Division]:
        """Return what each network trains on in an epoch.

        Args:
            nets: the networks.
            now: the epoch of the main phase.
            epoch: the epoch of the run, from 0.

        Raises:
            InputError: something observed is not finite.
        """
        pairs, total = self.data.pairs, len(self.data.image_of_pair)
        if self.config.noise.oracle:
            seen: dict[str, Seen] = {}
            found = {name: replace(self.method.trust(pairs, total), judge=name) for name in nets}
        else:
            observed = {name: self._observe(name, net, epoch) for name, net in nets.items()}
            seen = {name: found for name, found in observed.items() if found is not None}
            divided = self.method.divide(seen, nets, self.data, now)
            found = require_divisions(divided, nets, total, self.method.config.name)
        divisions = {name: self._with_truth(found[name], seen) for name in nets}
        self._say(divisions, epoch)
        return divisions

    def record(self, divisions: Mapping[str, Division], means: Means) -> None:
        """Put the figures of an epoch's divisions into its means."""
        for division in divisions.values():
            suffix = f"_{division.judge}" if division.judge else ""
            for key, value in division.figures.items():
                means.add(f"{key}{suffix}", value)

    def _observe(self, name: str, net: Net, epoch: int) -> Seen | None:
        if type(self.method).observe is Method.observe:
            return None
        try:
            return observe_pairs(self.method.observe, net, self.data, self.config, name, epoch)
        except MethodError:
            raise
        except InputError as error:
            raise InputError(f"partition by network {name}: {error}") from None

    def _with_truth(self, division: Division, seen: Mapping[str, Seen]) -> Division:
        """Add what is known of injected noise, for the record."""
        if self.truth is None or not self.method.divides():
            return division
        pairs = self.data.pairs
        losses = division.losses or (seen[division.judge].columns if division.judge in seen else {})
        prob = division.columns.get("clean_prob")
        # a method with one set trains on all pairs, as far as it trusts them
        clean = division.sets == 0 if prob is None or len(self.method.sets) > 1 else prob > 0.5
        figures = {**division.figures, **partition_truth(losses, clean, prob, pairs, self.truth)}
        mixture: dict[str, Any] = dict(division.mixture)
        if mixture:
            really = losses[mixture["loss"]][self.truth.clean[pairs]]
            mixture["clean_counts"] = loss_counts(really, mixture["low"], mixture["high"])
        return replace(division, figures=figures, mixture=mixture)

    def _say(self, divisions: Mapping[str, Division], epoch: int) -> None:
        """Say what is unusual about a division, once per run."""
        for remark in dict.fromkeys(division.remark for division in divisions.values()):
            if remark and remark not in self._said:
                self._said.add(remark)
                judges = sorted(division.judge for division in divisions.values() if division.remark == remark)
                log.warning("epoch %d, network %s: %s (logged once)", epoch + 1, " and ".join(judges), remark)


def observe_pairs(observe: Observe, net: Net, data: TrainingData, config: RunConfig, *names: str | int) -> Seen:
    """Observe all pairs, and some that are mismatched on purpose.

    Eval mode, no gradient. A pair's batch mates are those of one fixed shuffled order, the same in every epoch and for
    both networks. The last batch is filled up from the first pairs, so that every pair is observed among equally many.
    With `partition.augmented` the batches are augmented, as in the released code, by draws that depend on `names`
    (network, epoch). In the mismatched batches, as many as `CHUNK`, images meet the captions of another batch (where
    there is one batch only: of the next pair). With few batches, a caption of the image itself can still be among them.

    Raises:
        InputError: a value is not finite; the pair is named.
    """
    pairs, seed = data.pairs, config.train.seed
    size = min(config.partition.batch_size, len(pairs))
    order = torch.randperm(len(pairs), generator=torch_generator(seed, "scoring order"))
    padded = torch.cat([order, order[: -len(pairs) % size]])
    given: dict[str, list[Tensor]] = {}
    mismatched: dict[str, list[Tensor]] = {}
    with evaluating(net):
        images = None if config.partition.augmented else _Images(net, data)
        for start in range(0, len(padded), size * CHUNK):
            chunk = pairs[padded[start : start + size * CHUNK]]
            if images is None:
                batch = data.batch(chunk, torch_generator(seed, "scoring augmentation", *names, start))
                v, u = net.encode(batch)[0]
            else:
                v, u = images.of(chunk), encode_texts(net.backbone, data.texts, data.device, chunk, data.processes)
                net.count_encoded(len(chunk))
            _observe_batches(given, observe, net, v, u, chunk, size)
            if not mismatched:
                other = torch.arange(len(chunk), device=data.device).roll(size if len(chunk) > size else 1)
                _observe_batches(mismatched, observe, net, v, u[other], chunk, size)
    net.cost.passes += 1
    columns = {name: torch.cat(parts)[: len(pairs)].cpu() for name, parts in given.items()}
    return Seen(
        {name: _in_order(name, values, order, pairs) for name, values in columns.items()},
        {name: torch.cat(parts).cpu() for name, parts in mismatched.items()},
    )


def _observe_batches(
    found: dict[str, list[Tensor]], observe: Observe, net: Net, v: Items, u: Items, pairs: Tensor, size: int
) -> None:
    """Add what is observed of items (n), taken in batches of `size`."""
    for first in range(0, len(pairs), size):
        rows = slice(first, first + size)
        observed = observe(net, v[rows], u[rows], pairs[rows])
        for name, values in require_observed(observed, len(pairs[rows])).items():
            found.setdefault(name, []).append(values)


class _Images:
    """The images of pairs, encoded: all of them once; chunk by chunk where they, or their regions, fill the memory."""

    def __init__(self, net: Net, data: TrainingData) -> None:
        self.net, self.data = net, data
        self.all: Items | None = None
        if not net.backbone.interacts and 4 * len(data.images) * net.backbone.dim <= IMAGES_KEPT:
            self.all = encode_images(net.backbone, data.images, data.device, processes=data.processes)
            net.count_encoded(len(self.all))

    def of(self, pairs: Tensor) -> Items:
        """Return the images of pairs (k,) int64."""
        images = self.data.image_of_pair[pairs]
        if self.all is not None:
            return self.all[images.to(self.data.device)]
        own, place = torch.unique(images, return_inverse=True)
        self.net.count_encoded(len(own))
        found = encode_images(self.net.backbone, self.data.images, self.data.device, own, self.data.processes)
        return found[place.to(self.data.device)]


def _in_order(name: str, values: Tensor, order: Tensor, pairs: Tensor) -> Tensor:
    """Bring values of shuffled pairs back into the pairs' order, and check them."""
    bad = ~values.isfinite()
    if bad.any():
        raise InputError(f"the {name} loss of pair {int(pairs[order[bad]][0])} is {float(values[bad][0])}")
    result = torch.empty_like(values)
    result[order] = values
    return result

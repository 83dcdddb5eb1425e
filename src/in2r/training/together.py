"""Processes of one run are given the same, and what the first one has read or divided becomes the state of all."""

from typing import Any

import torch
from torch import Tensor

from in2r.config import deciding
from in2r.errors import InputError
from in2r.methods.registry import method_file
from in2r.processes import Processes
from in2r.runs.folder import RunFolder
from in2r.training.setup import Setup
from in2r.training.state import RunState


def require_same(setup: Setup) -> None:
    """Refuse processes that were given other settings or other data than the first one.

    Raises:
        InputError: on the first process, with the number of one that differs, and in what.
        EndedElsewhereError: on the others.
    """
    processes = setup.processes
    if processes.count == 1:
        return
    own = _given(setup)
    first = processes.send(own if processes.first else None)
    differing = [  # another method has other settings
        f"{name} ({own.get(name)}, the first process has {first.get(name)})"
        for name in {**own, **first}
        if own.get(name) != first.get(name)
    ]

    def compare() -> None:
        if differing:
            raise InputError(f"all processes of a run need the same settings and data: {'; '.join(differing[:3])}")

    processes.together(compare)


def _given(setup: Setup) -> dict[str, Any]:
    """Return what decides what a run learns, by name."""
    file = method_file(setup.config.method.name)
    return {
        **deciding(setup.config, "learning", "main phase"),
        "fingerprint of the data": setup.source.fingerprint()["hash"][:12],
        "noise index": None if setup.noise is None else setup.noise.sha256[:12],
        "vocabulary": None if setup.vocabulary is None else setup.vocabulary.hash[:12],
        "method file": None if file is None else file["sha256"][:12],
    }


def share_state(state: RunState, folder: RunFolder, pairs: int, processes: Processes) -> None:
    """Give every process the first one's state, as a checkpoint would hold it.

    Args:
        state: of the run.
        folder: the run; only the first process reads it.
        pairs: N, the training pairs.
        processes: those that train the run.
    """
    if processes.count == 1:
        return
    tensors: dict[str, Tensor] = {}
    meta: dict[str, Any] | None = None
    if processes.first:
        (learnt, about), (divided, plain) = state.pack(folder), state.pack_divisions(folder)
        tensors, meta = learnt | divided, about | plain
    like = [(name, tuple(tensor.shape), tensor.dtype, tensor.device.type) for name, tensor in tensors.items()]
    like, meta = processes.send((like, meta) if processes.first else None)
    for name, shape, dtype, device in like:
        if not processes.first:
            tensors[name] = torch.empty(shape, dtype=dtype, device=state.device if device != "cpu" else "cpu")
        tensors[name] = tensors[name].contiguous()
        processes.send_tensor(tensors[name])
    if not processes.first and meta is not None:
        state.take(folder.path, tensors, meta, pairs)


def share_division(state: RunState, processes: Processes) -> None:
    """Give every process the first one's division, and what the networks keep beside their backbones.

    All have computed the same; but processors of several kinds may differ in the last digits, and what is divided by
    them must not.
    """
    if processes.count == 1:
        return
    state.divisions = processes.send(state.divisions if processes.first else None)
    for net in state.nets.values():
        for buffer in net.own.buffers():
            processes.send_tensor(buffer)

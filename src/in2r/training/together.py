"""What the first process of a run has read or divided becomes the state of all."""

import torch

from in2r.processes import Processes
from in2r.runs.folder import RunFolder
from in2r.training.state import RunState


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
    tensors, meta = state.pack(folder) if processes.first else ({}, None)
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

"""What every package asks of a device: values from the host without waiting, and full precision where it matters."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor on the device; from the CPU to CUDA through page-locked memory, so that nobody waits."""
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def buffer(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return memory on the CPU for what `send` will take to the device: page-locked already where that helps."""
    return torch.empty(shape, dtype=dtype, pin_memory=torch.device(device).type == "cuda")


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which autocast is off."""
    able = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if able else nullcontext()


def at_least_float32(values: Tensor) -> Tensor:
    """Raise half precision to float32; float64 stays."""
    return values.to(torch.promote_types(values.dtype, torch.float32))

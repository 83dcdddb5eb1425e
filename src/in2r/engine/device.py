"""Where a run computes: the one place that names a device."""

import torch

from in2r.errors import InputError


def resolve_device(setting: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into a device that exists.

    Raises:
        InputError: the name is unknown or no such device is here.
    """
    if setting == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(setting)
    except RuntimeError:
        raise InputError(f"device {setting}: expected auto, cpu, cuda, cuda:<number> or mps") from None
    here = {
        "cpu": device.index in (None, 0),
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not here.get(device.type, False):
        raise InputError(f"device {setting}: no such device on this machine")
    return device

"""The one place where kinds of encoders are listed: `KIND:NAME` → an encoder."""

from collections.abc import Callable
from typing import Any

import torch

from in2r.encoders.base import ImageEncoder, TextEncoder, has_text_side
from in2r.errors import InputError, near
from in2r.files import expand_home

KINDS = ("transformers", "timm", "open_clip", "onnx", "python")
"""What may stand before the colon of `--encoder`."""


def split_name(text: str) -> tuple[str, str]:
    """Return kind and name of `KIND:NAME`; `~` is the home folder in a name that is a path.

    Raises:
        InputError: another form, or another kind.
    """
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in KINDS:
        listed = ", ".join(f"{known}:..." for known in KINDS)
        raise InputError(f"--encoder {text!r}: expected one of {listed}{near(kind, KINDS)}")
    return kind, expand_home(name)


def open_encoder(text: str, device: torch.device) -> ImageEncoder:
    """Load an image encoder.

    Args:
        text: `KIND:NAME`.
        device: where it computes.

    Raises:
        InputError: no such kind or model, or a package is not installed.
    """
    encoder = _load(text, device)
    if not hasattr(encoder, "encode"):
        raise InputError(f"{text}: encodes texts only; name an encoder of images, and this one with --text-encoder")
    return encoder  # type: ignore[no-any-return]


def open_text_encoder(text: str, device: torch.device) -> TextEncoder:
    """Load a text encoder; arguments as of `open_encoder`.

    Raises:
        InputError: as `open_encoder`, and where the model encodes no texts.
    """
    encoder = _load(text, device)
    if not has_text_side(encoder):
        raise InputError(f"{text}: encodes no texts; expected a text model such as transformers:FOLDER")
    return encoder  # type: ignore[no-any-return]


def _load(text: str, device: torch.device) -> Any:
    kind, name = split_name(text)
    load: Callable[[str, torch.device], Any]
    if kind == "transformers":
        from in2r.encoders.transformers_models import load
    elif kind == "timm":
        from in2r.encoders.timm_models import load
    elif kind == "open_clip":
        from in2r.encoders.open_clip_models import load
    elif kind == "onnx":
        from in2r.encoders.onnx_files import load
    else:
        from in2r.encoders.python_files import load
    return load(name, device)

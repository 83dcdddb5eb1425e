"""An ONNX file with a small JSON beside it that says how images are prepared; run by onnxruntime."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from in2r.encoders.base import Encoded
from in2r.encoders.weights import versions
from in2r.errors import InputError
from in2r.files import read_json, sha256_file
from in2r.form import read

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preparation:
    """FILE.json: the short side becomes `resize`, the middle `size` x `size` is cut out, (value / 255 - mean) / std.

    Attributes:
        size: side of the input, in pixels.
        resize: short side before the cut; None: size.
        mean: of red, green, blue, between 0 and 1; ImageNet's by default.
        std: likewise.
        layout: of the input and of a four-dimensional output.
        output: the name of the output that is taken; None: the first.
    """

    size: int
    resize: int | None = None
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    output: str | None = None


def load(name: str, device: torch.device) -> "OnnxEncoder":
    """Open an ONNX file and the JSON beside it.

    Raises:
        InputError: a file is missing or cannot be read, or onnxruntime is absent.
    """
    path = Path(name)
    try:
        import onnxruntime
    except ImportError:
        raise InputError('onnx:... needs onnxruntime: pip install "in2r[onnx]"') from None
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    settings = path.with_suffix(".json")
    if not settings.is_file():
        raise InputError(f'{settings}: no such file; write how images are prepared, such as {{"size": 224}}')
    preparation = read(Preparation, read_json(settings), str(settings))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
    chosen = [one for one in wanted if one in onnxruntime.get_available_providers()]
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[*chosen, "CPUExecutionProvider"])
    except Exception as error:
        raise InputError(f"{path}: not a readable ONNX model ({' '.join(str(error).split())[:200]})") from None
    names = [output.name for output in session.get_outputs()]
    if preparation.output is not None and preparation.output not in names:
        raise InputError(f"{settings}: no output {preparation.output!r}; the model has {', '.join(names)}")
    return OnnxEncoder(path, session, preparation, preparation.output or names[0])


class OnnxEncoder:
    """A model's output: (n, d) is the whole image, (n, regions, d) regions, four dimensions a grid."""

    def __init__(self, path: Path, session: Any, preparation: Preparation, output: str) -> None:
        self._path, self._session, self._preparation, self._output = path, session, preparation, output
        self._input = session.get_inputs()[0].name

    @cached_property
    def record(self) -> dict[str, Any]:
        """See `ImageEncoder`."""
        settings = asdict(self._preparation)
        return {
            "kind": "onnx",
            "name": str(self._path),
            "weights_sha256": sha256_file(self._path),
            "preprocessing": {key: list(each) if isinstance(each, tuple) else each for key, each in settings.items()},
            "versions": versions("onnxruntime", "torch", "pillow"),
        }

    def prepare(self, image: "Image") -> NDArray[Any]:
        """See `ImageEncoder`."""
        from PIL import Image

        wanted = self._preparation
        scale = (wanted.resize or wanted.size) / min(image.size)
        width, height = (max(wanted.size, round(side * scale)) for side in image.size)
        left, top = (width - wanted.size) // 2, (height - wanted.size) // 2
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        cut = resized.crop((left, top, left + wanted.size, top + wanted.size))
        mean, std = np.array(wanted.mean, np.float32), np.array(wanted.std, np.float32)
        values: NDArray[Any] = (np.asarray(cut, np.float32) / 255 - mean) / std
        return values.transpose(2, 0, 1) if wanted.layout == "NCHW" else values

    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`."""
        found = torch.as_tensor(self._session.run([self._output], {self._input: np.ascontiguousarray(batch)})[0])
        if found.dim() == 4:
            return Encoded(grid=found.permute(0, 2, 3, 1) if self._preparation.layout == "NCHW" else found)
        if found.dim() == 3:
            return Encoded(regions=found)
        if found.dim() == 2:
            return Encoded(whole=found)
        shape = tuple(found.shape)
        raise InputError(f"{self._path}: output {self._output} has shape {shape}; expected 2 to 4 dimensions")

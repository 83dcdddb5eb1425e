"""From configuration to encoders: the one place where a model is put together."""

from dataclasses import MISSING, dataclass
from typing import Literal

import torch
from torch import Tensor

from in2r.config import key
from in2r.encoders import DualEncoder, RegionEncoder, VectorEncoder, WordEncoder
from in2r.errors import InputError


@dataclass(frozen=True)
class ModelConfig:
    """Section `model`: the two encoders (defaults: GPO backbone as in the paper's own copy)."""

    dim: int = key(1024, "dimension D of the shared space (VSE∞, IN²R)", low=1)
    image: Literal["regions", "linear", "mlp"] = key(
        "regions",
        "image encoder: regions = fc + MLP, then GPO; linear or mlp = a projection of one vector, where an image has "
        "several of their mean",
    )
    text: Literal["auto", "words", "linear", "mlp"] = key(
        "auto",
        "text encoder: words = Bi-GRU + GPO; linear or mlp = a projection of one caption vector; "
        "auto = words, or mlp where the data gives caption vectors",
    )
    hidden: int | None = key(None, "width of the MLPs' hidden layer; null = dim / 2 (as in VSE∞)", low=1)
    image_dropout: float = key(0.3, "dropout on image features: makes the two views of Eq. 4", low=0, high=0.95)
    text_dropout: float = key(
        0.3, "dropout on word embeddings or caption vectors: makes the two views of Eq. 4", low=0, high=0.95
    )
    word_dim: int = key(300, "dimension of word embeddings (GloVe's)", low=1)
    gpo_position_dim: int = key(32, "width of GPO's position code (VSE∞)", low=2)
    gpo_hidden_dim: int = key(32, "width of GPO's GRU (VSE∞)", low=1)
    gpo_temperature: float = key(0.1, "temperature of GPO's softmax over positions (VSE∞)", above=0)
    center: bool = key(
        False,
        "subtract the batch mean in training and a frozen running mean afterwards (released code: true)",
    )


@dataclass(frozen=True)
class Inputs:
    """What the encoders are fed with: found in the data, kept with the model."""

    image_dim: int = key(MISSING, "dimension of image features", low=1, high=2**24)
    text: Literal["words", "vectors"] = key(MISSING, "how captions are given")
    text_dim: int = key(
        MISSING, "dimension of the caption vectors, or the number of words in the vocabulary", low=1, high=2**24
    )
    image_regions: int | None = key(
        None, "regions of a training image, padding included; null = not known (a model of an older in2r)", low=1
    )

    @property
    def image_shapes(self) -> str:
        """The shapes in which images may be given, for messages; flat unless training images had several regions."""
        regions, flat = f"(N, regions, {self.image_dim})", f"(N, {self.image_dim})"
        return regions if (self.image_regions or 1) > 1 else f"{regions} or {flat}"


def build_encoder(config: ModelConfig, inputs: Inputs, word_matrix: Tensor | None = None) -> DualEncoder:
    """Build the dual encoder f, g for the given inputs; initial weights come from torch's default generator.

    Args:
        config: section `model`.
        inputs: dimensions of image features and of words or caption vectors.
        word_matrix: (words, word_dim) initial word embeddings, or None.

    Raises:
        InputError: the text encoder does not fit what the captions are.
    """
    gpo = {
        "position_dim": config.gpo_position_dim,
        "hidden_dim": config.gpo_hidden_dim,
        "temperature": config.gpo_temperature,
    }
    hidden = config.hidden or max(1, config.dim // 2)
    image: torch.nn.Module
    if config.image == "regions":
        image = RegionEncoder(inputs.image_dim, config.dim, hidden, dropout=config.image_dropout, gpo=gpo)
    else:
        image = VectorEncoder(
            inputs.image_dim,
            config.dim,
            hidden if config.image == "mlp" else None,
            dropout=config.image_dropout,
        )
    text: torch.nn.Module
    if text_kind(config, inputs.text) == "words":
        text = WordEncoder(
            inputs.text_dim,
            config.word_dim,
            config.dim,
            hidden,
            dropout=config.text_dropout,
            pretrained=word_matrix,
            gpo=gpo,
        )
    else:
        mlp = config.text in ("auto", "mlp")
        text = VectorEncoder(inputs.text_dim, config.dim, hidden if mlp else None, dropout=config.text_dropout)
    return DualEncoder(image, text, center=config.center)


def text_kind(config: ModelConfig, given: Literal["words", "vectors"]) -> Literal["words", "vectors"]:
    """Check the text encoder against what the data gives as captions."""
    wanted = {"auto": given, "words": "words", "linear": "vectors", "mlp": "vectors"}[config.text]
    if wanted != given:
        raise InputError(
            f"model.text={config.text} needs captions as {wanted}, the data gives {given}; "
            "use model.text=auto or set data.caption_vectors"
        )
    return given

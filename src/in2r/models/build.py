"""From configuration to a backbone: the one place where a model is put together."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial
from typing import Literal

from torch import Tensor, nn

from in2r.config import key
from in2r.errors import InputError
from in2r.layers.pooling import GPO, MeanPool
from in2r.models.base import Backbone
from in2r.models.dual import DualEncoder
from in2r.models.encoders import RegionEncoder, VectorEncoder, WordEncoder
from in2r.models.interaction import Interaction
from in2r.models.parts import RegionParts, WordParts
from in2r.models.saf import Saf
from in2r.models.scan import Scan
from in2r.models.sgr import Sgr
from in2r.models.vsepp import PlainWordEncoder

INTERACTION = ("sgr", "saf", "scan")
"""backbones that compare regions with words, and read captions as words alone"""
REGION_NORM = ("sgr", "saf")
"""those whose BatchNorm has one channel per region"""


@dataclass(frozen=True)
class ModelConfig:
    """Section `model`: the backbone (defaults: GPO as in the paper's own copy); keys of another one have no effect."""

    backbone: Literal["gpo", "vsepp", "sgr", "saf", "scan"] = key(
        "gpo",
        "how regions and words become a similarity. gpo (IN²R, VSE∞): GPO pools each side to one vector, S is a "
        "cosine; vsepp (VSE++): the same without MLP and without learnt pooling; sgr and saf (the halves of SGRAF, the "
        "backbone of most published methods): every word is compared with the regions, S in (0, 1), hundreds of times "
        "slower; scan (SCAN): likewise, S pooled of cosines",
    )
    dim: int = key(1024, "dimension D of the shared space (VSE∞, VSE++, SGRAF, IN²R)", low=1)
    image: Literal["regions", "linear", "mlp"] = key(
        "regions",
        "image encoder: regions = the backbone's own (gpo: fc + MLP, then GPO; vsepp: linear, then the mean); linear "
        "or mlp = a projection of one vector, of the mean if an image has several",
    )
    text: Literal["auto", "words", "linear", "mlp"] = key(
        "auto",
        "text encoder: words = Bi-GRU, then the backbone's own; linear or mlp = a projection of one caption vector; "
        "auto = words, or mlp where the data gives caption vectors",
    )
    residual: bool = key(
        False, "mlp of one vector: a linear projection is added to it, as gpo's encoder of regions does"
    )
    hidden: int | None = key(None, "width of the MLPs' hidden layer; null = dim / 2 (as in VSE∞)", low=1)
    image_dropout: float = key(
        0.3, "dropout on image features: makes the two views of Eq. 4 (VSE++, SGRAF, SCAN: 0)", low=0, high=0.95
    )
    text_dropout: float = key(
        0.3,
        "dropout on word embeddings or caption vectors: makes the two views of Eq. 4 (VSE++, SCAN: 0, SGRAF: 0.4)",
        low=0,
        high=0.95,
    )
    word_dim: int = key(300, "dimension of word embeddings (GloVe's)", low=1)
    pooling: Literal["gpo", "mean"] = key(
        "gpo",
        "gpo: how a set becomes one vector: GPO, which learns weights of the sorted features (VSE∞), or the mean "
        "(docs/results/by-hand.md: as good on photographs with ten regions)",
    )
    gpo_position_dim: int = key(32, "width of GPO's position code (VSE∞)", low=2)
    gpo_hidden_dim: int = key(32, "width of GPO's GRU (VSE∞)", low=1)
    gpo_temperature: float = key(0.1, "temperature of GPO's softmax over positions (VSE∞)", above=0)
    vsepp_words: Literal["mean", "last"] = key(
        "mean",
        "vsepp: a caption is the mean of its Bi-GRU's states, as the images' mean over regions; or the last state of a "
        "forward GRU (VSE++)",
    )
    sgr_dim: int = key(256, "sgr, saf: dimension of a similarity vector (SGRAF)", low=1)
    sgr_steps: int = key(3, "sgr: steps of graph reasoning, each with its own weights (SGRAF)", low=1, high=100)
    attention_smoothing: float = key(
        9.0,
        "sgr, saf, scan: factor of the cosines in the softmax over what is attended to (SGRAF, SCAN t2i; SCAN i2t: 4)",
        above=0,
    )
    attention_dropout: float = key(
        0.4, "sgr, saf: dropout in the self-attention that makes a global vector (SGRAF)", low=0, high=0.95
    )
    scan_direction: Literal["t2i", "i2t"] = key(
        "t2i", "scan: t2i = every word attends to the regions; i2t = every region attends to the words"
    )
    scan_pooling: Literal["lse", "mean"] = key(
        "lse", "scan: how the cosines of the words (t2i) or regions (i2t) become S: log-sum-exp, or their mean"
    )
    scan_lse: float = key(
        6.0, "scan: factor of the cosines in log-sum-exp (SCAN t2i; SCAN i2t: 5 on Flickr30K, 20 on COCO)", above=0
    )
    center: bool = key(
        False,
        "gpo, vsepp: subtract the batch mean in training and a frozen running mean afterwards (IN²R's code: true)",
    )


@dataclass(frozen=True)
class Inputs:
    """What the encoders are fed with: found in the data, kept with the model."""

    image_dim: int = key(MISSING, "dimension of image features", low=1, high=2**24)
    text: Literal["words", "vectors"] = key(MISSING, "how captions are given")
    text_dim: int = key(
        MISSING, "dimension of the caption vectors, or the number of words in the vocabulary", low=1, high=2**24
    )
    regions: int | None = key(
        None,
        "regions of a training image, padding included; null = not known; `sgr`, `saf` and `scan` need it",
        low=1,
        high=2**24,
    )

    @property
    def image_shapes(self) -> str:
        """The shapes in which images may be given, for messages; flat unless training images had several regions."""
        regions, flat = f"(N, regions, {self.image_dim})", f"(N, {self.image_dim})"
        return regions if (self.regions or 1) > 1 else f"{regions} or {flat}"


def build_backbone(config: ModelConfig, inputs: Inputs, word_matrix: Tensor | None = None) -> Backbone:
    """Build the backbone for the given inputs; initial weights come from torch's default generator.

    Args:
        config: section `model`.
        inputs: dimensions of image features and of words or caption vectors.
        word_matrix: (words, word_dim) initial word embeddings, or None.

    Raises:
        InputError: keys that contradict each other, or an encoder that does not fit the data.
    """
    fault = model_fault(config)
    if fault:
        raise InputError(fault)
    words = text_kind(config, inputs.text) == "words"
    if config.backbone in INTERACTION:
        return _build_interaction(config, inputs, word_matrix)
    image = _image_encoder(config, inputs)
    text = _word_encoder(config, inputs, word_matrix) if words else _vector_encoder(config, inputs)
    return DualEncoder(image, text, center=config.center)


def model_fault(config: ModelConfig) -> str:
    """Return which keys of section `model` contradict `model.backbone`, or an empty text."""
    if config.backbone not in INTERACTION:
        return ""
    wrong = [f"model.image={config.image} (expected regions)"] * (config.image != "regions")
    wrong += [f"model.text={config.text} (expected words or auto)"] * (config.text in ("linear", "mlp"))
    wrong += ["model.center=true (expected false: S is no inner product of two vectors)"] * config.center
    if not wrong:
        return ""
    return f"model.backbone={config.backbone} compares words with regions, and contradicts {', '.join(wrong)}"


def text_kind(config: ModelConfig, given: Literal["words", "vectors"]) -> Literal["words", "vectors"]:
    """Check the text encoder against what the data gives as captions."""
    if config.backbone in INTERACTION and given == "vectors":
        raise InputError(
            f"model.backbone={config.backbone} needs captions as words, the data gives one vector per caption: "
            "attention over one word has no effect; use model.backbone=gpo, or captions as text"
        )
    wanted = {"auto": given, "words": "words", "linear": "vectors", "mlp": "vectors"}[config.text]
    if wanted != given:
        raise InputError(
            f"model.text={config.text} needs captions as {wanted}, the data gives {given}; "
            "use model.text=auto or set data.caption_vectors"
        )
    return given


def _build_interaction(config: ModelConfig, inputs: Inputs, word_matrix: Tensor | None) -> Interaction:
    if inputs.regions is None or inputs.regions == 1:
        found = "1 region" if inputs.regions else "an unknown number of regions"
        raise InputError(
            f"model.backbone={config.backbone} needs several regions per image, found {found}; use model.backbone=gpo, "
            "or features of images × regions × dim"
        )
    rate = None if config.backbone == "scan" else config.attention_dropout
    image = RegionParts(inputs.image_dim, config.dim, inputs.regions, config.image_dropout, rate)
    text = WordParts(inputs.text_dim, config.word_dim, config.dim, config.text_dropout, rate, word_matrix)
    smoothing = config.attention_smoothing
    if config.backbone == "scan":
        return Scan(image, text, config.scan_direction, config.scan_pooling, smoothing, config.scan_lse)
    if config.backbone == "saf":
        return Saf(image, text, config.sgr_dim, smoothing)
    return Sgr(image, text, config.sgr_dim, config.sgr_steps, smoothing)


def _image_encoder(config: ModelConfig, inputs: Inputs) -> nn.Module:
    if config.image == "regions" and config.backbone == "gpo":
        pool = _pooling(config)
        return RegionEncoder(inputs.image_dim, config.dim, _hidden(config), dropout=config.image_dropout, pool=pool)
    hidden_layer = _hidden(config) if config.image == "mlp" else None
    return VectorEncoder(inputs.image_dim, config.dim, hidden_layer, config.image_dropout, config.residual)


def _word_encoder(config: ModelConfig, inputs: Inputs, word_matrix: Tensor | None) -> nn.Module:
    sizes = inputs.text_dim, config.word_dim, config.dim
    rate = config.text_dropout
    if config.backbone == "vsepp":
        return PlainWordEncoder(*sizes, pooling=config.vsepp_words, dropout=rate, pretrained=word_matrix)
    return WordEncoder(*sizes, _hidden(config), dropout=rate, pretrained=word_matrix, pool=_pooling(config))


def _vector_encoder(config: ModelConfig, inputs: Inputs) -> nn.Module:
    hidden = None if config.text == "linear" else _hidden(config)
    return VectorEncoder(inputs.text_dim, config.dim, hidden, config.text_dropout, config.residual)


def _hidden(config: ModelConfig) -> int:
    return config.hidden or max(1, config.dim // 2)


def _pooling(config: ModelConfig) -> Callable[[], GPO | MeanPool]:
    if config.pooling == "mean":
        return MeanPool
    return partial(GPO, config.gpo_position_dim, config.gpo_hidden_dim, config.gpo_temperature)

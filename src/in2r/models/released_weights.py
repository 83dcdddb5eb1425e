"""From the names of released weights to those of our backbones: sizes, shapes, words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.data.text.vocabulary import MASK, Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.released import Released

COMMON = {"img_enc.fc": "image.fc", "txt_enc.embed": "text.embed", "txt_enc.cap_rnn": "text.cap_rnn"}
SCAN_POOLING = {"LogSumExp": "lse", "Mean": "mean"}
"""SCAN's option agg_func → `model.scan_pooling`"""
STEP = {"graph_query_w": "query", "graph_key_w": "key", "sim_graph_w": "graph"}
SIMILARITY_VECTORS = {
    **COMMON,
    "sim_enc.v_global_w.embedding_local.0": "image.attention.part",
    "sim_enc.v_global_w.embedding_local.1": "image.attention.part_norm",
    "sim_enc.v_global_w.embedding_global.0": "image.attention.whole",
    "sim_enc.v_global_w.embedding_global.1": "image.attention.whole_norm",
    "sim_enc.v_global_w.embedding_common.0": "image.attention.weight",
    "sim_enc.t_global_w.embedding_local.0": "text.attention.part",
    "sim_enc.t_global_w.embedding_global.0": "text.attention.whole",
    "sim_enc.t_global_w.embedding_common.0": "text.attention.weight",
    "sim_enc.sim_tranloc_w": "local",
    "sim_enc.sim_tranglo_w": "whole",
    "sim_enc.sim_eval_w": "head",
}
NAMES: dict[str, dict[str, str]] = {
    "sgr": SIMILARITY_VECTORS,
    "saf": {**SIMILARITY_VECTORS, "sim_enc.SAF_module.attn_sim_w": "gate", "sim_enc.SAF_module.bn": "norm"},
    "scan": {"img_enc.fc": "image.fc", "txt_enc.embed": "text.embed", "txt_enc.rnn": "text.cap_rnn"},
    "gpo": {
        **COMMON,
        "txt_enc.fc": "text.fc",
        **{f"{theirs}_enc.{module}": f"{ours}.{module}"
           for theirs, ours in (("img", "image"), ("txt", "text")) for module in ("mlp", "gpool")},
    },
    "vsepp": {"img_enc.fc": "image.projection", "txt_enc.embed": "text.embed", "txt_enc.rnn": "text.cap_rnn"},
}  # fmt: skip
"""backbone → a released module and ours; SGR's steps are added as there are any"""
UNUSED = ("img_enc.mlp.bns.1.", "txt_enc.mlp.bns.1.", "img_pro_head.")
"""Modules of no influence on a similarity: a norm of IN²R's authors that is never applied, PC²'s head for training."""
MEANS = ("image_center.running_mean", "text_center.running_mean")
"""What a file of IN²R's authors lacks: they subtract the mean of the batch, at test too."""


@dataclass(frozen=True)
class Sizes:
    """What the shapes of released weights say of a network.

    Attributes:
        model: section `model` of the settings.
        image_dim: width of an image feature.
        words: rows of the word embedding.
        regions: regions per image; None where the backbone takes any number.
    """

    model: dict[str, Any]
    image_dim: int
    words: int
    regions: int | None


def sizes_of(released: Released, file: Path) -> Sizes:
    """Infer the sizes of the networks from the first one's weights; `file` is for messages.

    Raises:
        InputError: a weight that has a size is missing or has another number of axes; an option that the similarity
            needs is missing or unknown.
    """
    weights, place = released.networks["A"], f"{file}: network A"

    def size(key: str, axis: int, axes: int = 2) -> int:
        shape = tuple(_get(weights, key, place).shape)
        if len(shape) != axes:
            raise InputError(f"{place}: {key} has the shape {shape}; expected {axes} ax{'is' if axes == 1 else 'es'}")
        if 0 in shape:
            raise InputError(f"{place}: {key} has the shape {shape}; expected no 0 in it")
        return shape[axis]

    backbone: str = released.family.backbone
    regions, own = None, dict[str, Any]()
    if backbone == "sgr":
        own = {"sgr_dim": size("sim_enc.sim_tranglo_w.weight", 0), "image_dropout": 0.0, "text_dropout": 0.4}
        if any(key.startswith("sim_enc.SAF_module.") for key in weights):
            backbone = "saf"
        else:
            own["sgr_steps"] = _steps(weights, place)
        regions = size("sim_enc.v_global_w.embedding_local.1.weight", 0, 1)
    elif backbone == "gpo":
        own = {
            "hidden": size("img_enc.mlp.layers.0.weight", 0),
            "gpo_hidden_dim": size("img_enc.gpool.linear.weight", 1),
            "gpo_position_dim": size("img_enc.gpool.gru.weight_ih_l0", 1),
            "center": True,
        }
    elif backbone == "scan":
        own = {**_scan(released.options, file), "image_dropout": 0.0, "text_dropout": 0.0}
    else:
        own = {"vsepp_words": "last", "image_dropout": 0.0, "text_dropout": 0.0}
    dim, image_dim = (size("img_enc.fc.weight", axis) for axis in (0, 1))
    words, word_dim = (size("txt_enc.embed.weight", axis) for axis in (0, 1))
    model = {"backbone": backbone, "dim": dim, "word_dim": word_dim, "text": "words", **own}
    return Sizes(model, image_dim, words, regions)


def _steps(weights: Mapping[str, Tensor], place: str) -> int:
    """Count the steps of SGR."""
    steps = {key.split(".")[2] for key in weights if key.startswith("sim_enc.SGR_module.")}
    if not steps:
        raise InputError(f"{place}: no sim_enc.SGR_module.0.graph_query_w.weight, nor a weight of sim_enc.SAF_module")
    return len(steps)


def _scan(options: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the settings of SCAN's similarity, which has no weights: its options say how it is computed."""
    known: dict[str, tuple[object, ...]] = {
        "cross_attn": ("t2i", "i2t"),
        "agg_func": tuple(SCAN_POOLING),
        "raw_feature_norm": ("clipped_l2norm",),
    }
    for name, values in known.items():
        if options.get(name) not in values:
            expected = " or ".join(map(str, values))
            raise InputError(f"{file}: option {name} is {options.get(name)}; expected {expected}")
    factors = {"lambda_softmax": "attention_smoothing"}
    if options["agg_func"] == "LogSumExp":
        factors["lambda_lse"] = "scan_lse"
    for name in factors:
        if not isinstance(options.get(name), int | float) or options[name] <= 0:
            raise InputError(f"{file}: option {name} is {options.get(name)}; expected a number above 0")
    chosen = {"scan_direction": options["cross_attn"], "scan_pooling": SCAN_POOLING[options["agg_func"]]}
    return chosen | {ours: float(options[theirs]) for theirs, ours in factors.items()}


def unused_modules(released: Released) -> list[str]:
    """Return the modules of the networks that have no influence on a similarity, and are not imported."""
    return [prefix[:-1] for prefix in UNUSED if any(key.startswith(prefix) for key in released.networks["A"])]


def fit_words(rows: int, vocabulary: Vocabulary, source: Path, file: Path) -> bool:
    """Compare the rows of the word embedding with a vocabulary.

    Args:
        rows: number of word embeddings in the checkpoint.
        vocabulary: the words; <mask> is among them.
        source: the vocabulary's file.
        file: the checkpoint.

    Returns:
        Whether the checkpoint has no row for <mask>, the last word: it was trained before that word was added.

    Raises:
        InputError: another number of words.
    """
    words = len(vocabulary)
    if rows == words:
        return False
    if rows == words - 1 and vocabulary.words[-1] == MASK:
        return True
    raise InputError(
        f"{file}: txt_enc.embed.weight has {rows} rows, but {source} has {words} words with {MASK}; give the "
        "vocabulary that the checkpoint was trained with"
    )


def own_weights(
    weights: Mapping[str, Tensor], model: ModelConfig, inputs: Inputs, place: str, add_mask: bool
) -> dict[str, Tensor]:
    """Return a network's weights under our names.

    Args:
        weights: by their released names.
        model: how our backbone is built.
        inputs: what it is fed with.
        place: file and network, for messages.
        add_mask: give <mask> the embedding of <unk>, because it has none. Captions do not hold that word.

    Raises:
        InputError: a weight is missing, left over, or has another shape; named as in the file.
    """
    with torch.device("meta"):
        expected = build_backbone(model, inputs).state_dict()
    left = {key: value for key, value in weights.items() if not key.startswith(UNUSED)}
    if add_mask and "txt_enc.embed.weight" in left:
        rows = left["txt_enc.embed.weight"]
        left["txt_enc.embed.weight"] = torch.cat([rows, rows[Vocabulary.UNK : Vocabulary.UNK + 1]])
    theirs, found = _released_names(model), {}
    for key, like in expected.items():
        if key in MEANS:
            found[key] = torch.zeros(like.shape)
            continue
        name = _released_name(key, theirs)
        value = _get(left, name, place)
        if value.shape != like.shape:
            raise InputError(f"{place}: {name} has the shape {tuple(value.shape)}; expected {tuple(like.shape)}")
        if like.is_floating_point() and not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{place}: {name} has the type {kind}; expected floating-point numbers")
        found[key] = left.pop(name).to(like.dtype)
    if left:
        named = ", ".join(list(left)[:3]) + (", ..." if len(left) > 3 else "")
        raise InputError(
            f"{place}: left over, no weight of the {model.backbone} backbone: {named}; it is another model"
        )
    return found


def _get(weights: Mapping[str, Tensor], key: str, place: str) -> Tensor:
    if key not in weights:
        module = key.rpartition(".")[0].rpartition(".")[0]
        there = [name for name in weights if name.startswith(f"{module}.")] or list(weights)
        named = ", ".join(there[:5]) + (", ..." if len(there) > 5 else "")
        raise InputError(f"{place}: no {key}; found {named or 'no weight'}")
    return weights[key]


def _released_names(model: ModelConfig) -> dict[str, str]:
    """Return our module → the released one."""
    names = {ours: theirs for theirs, ours in NAMES[model.backbone].items()}
    if model.backbone == "sgr":
        for step in range(model.sgr_steps):
            names |= {f"steps.{step}.{ours}": f"sim_enc.SGR_module.{step}.{theirs}" for theirs, ours in STEP.items()}
    return names


def _released_name(key: str, names: Mapping[str, str]) -> str:
    """Return the released name of our weight."""
    module = next(module for module in names if key.startswith(f"{module}."))
    return names[module] + key.removeprefix(module)

"""The model folder: what training makes for use.

model.safetensors   both networks' encoders, named A.* and B.*
config.json         format, sizes, inputs, and where the weights come from
vocabulary.json     the words, where captions are read as text
README.md           the model card
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import in2r
from in2r.config import fill, to_dict
from in2r.data.encoder_record import require_same_encoder
from in2r.data.text.vocabulary import Vocabulary
from in2r.device import resolve_device
from in2r.errors import InputError, command_line
from in2r.files import read_json, write_json, write_text
from in2r.models.base import Backbone
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.card import model_card
from in2r.models.hub import fetch, is_hub_id
from in2r.models.retrieval import RetrievalModel
from in2r.tensors import load_tensors, save_tensors

FORMAT = {"format": "in2r-model", "format_version": 1}
WEIGHTS = "model.safetensors"
FORMER_WEIGHTS = "weights.safetensors"
"""their name in folders that were made before models could be shared"""
FILES = ("config.json", WEIGHTS, "vocabulary.json")
"""what a model is loaded from"""


def save_model(
    folder: str | os.PathLike[str],
    encoders: Mapping[str, Backbone],
    model: ModelConfig,
    inputs: Inputs,
    vocabulary: Vocabulary | None,
    card: str | None,
    extra: Mapping[str, Any],
) -> Path:
    """Write a model folder, whole or not at all; an older model at the same place is replaced.

    Args:
        folder: the folder to make.
        encoders: the networks by name.
        model: how the encoders are built.
        inputs: what they are fed with.
        vocabulary: the words, where captions are read as text.
        card: the model card, as Markdown; None = the one that config.json gives.
        extra: more for config.json: data, noise, method, results.

    Raises:
        InputError: something that is no model is there, or it cannot be written; an older model is kept.
    """
    words = None if vocabulary is None else {"hash": vocabulary.hash, "words": len(vocabulary)}
    own = {
        **FORMAT,
        "in2r": in2r.__version__,
        "model": to_dict(model),
        "inputs": to_dict(inputs),
        "networks": list(encoders),
        "vocabulary": words,
    }
    config = own | dict(extra) | own  # in this order, with what is written now
    tensors = {f"{name}.{key}": value for name, net in encoders.items() for key, value in net.state_dict().items()}
    try:
        with replaced_folder(folder, FORMAT["format"]) as fresh:
            save_tensors(fresh / WEIGHTS, tensors, FORMAT)
            if vocabulary is not None:
                vocabulary.save(fresh / "vocabulary.json")
            write_text(fresh / "README.md", model_card(config) if card is None else card)
            write_json(fresh / "config.json", config)
    except OSError as error:
        raise InputError(f"{folder}: could not be written ({error.strerror}); an older model is kept") from None
    return Path(folder)


@contextmanager
def replaced_folder(folder: str | os.PathLike[str], made_as: object) -> Iterator[Path]:
    """Yield an empty folder beside a folder; give it that one's name when the block succeeds.

    What a killed process has left is repaired first: the names of both helpers are fixed.

    Args:
        folder: the folder to make.
        made_as: `format` in the config.json of a folder that may be replaced.

    Raises:
        InputError: something else is there.
    """
    target = Path(os.path.abspath(folder))
    if target.exists() and not _is(target, made_as):
        what = "a model folder" if made_as == FORMAT["format"] else f"a folder of {made_as}"
        raise InputError(f"{folder}: exists and is not {what} (no valid config.json); remove or rename it")
    fresh, old = (target.with_name(f".{target.name}.{kind}") for kind in ("new", "old"))
    if old.exists() and not target.exists():
        old.rename(target)
    for stale in (fresh, old):
        shutil.rmtree(stale, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is(folder: Path, made_as: object) -> bool:
    try:
        config = read_json(folder / "config.json")
    except InputError:
        return False
    return isinstance(config, dict) and config.get("format") == made_as


def load(
    folder: str | os.PathLike[str],
    device: str = "auto",
    network: Literal["ensemble", "A", "B"] = "ensemble",
    *,
    data: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> RetrievalModel:
    """Load a model folder, the model of a run folder, or a model on a hub.

    Args:
        folder: a folder written by `in2r train` (RUN or RUN/model), or a hub id `owner/name` (with `in2r[hub]`). If
            there is a folder of that name, it is the folder that is loaded.
        device: auto, cpu, cuda, cuda:1, mps.
        network: both networks as one vector per item, or one of them.
        data: the folder of the features that the model will be given: they must be of the encoder that made those of
            its training, as far as both say (encoder.json of `in2r features`).
        revision: of a model on a hub: a branch, tag or commit; None = the newest.

    Raises:
        InputError: no model is there, it is cut off, its parts do not belong together, or the features are of another
            encoder.
    """
    path = _locate(folder, revision)
    config = read_json(path / "config.json")
    if not isinstance(config, dict) or config.get("format") != FORMAT["format"]:
        raise InputError(f"{path / 'config.json'}: not the description of an in2r model")
    if config.get("format_version") != FORMAT["format_version"]:
        raise InputError(
            f"{path / 'config.json'}: format version {config.get('format_version')}; this in2r "
            f"{in2r.__version__} reads {FORMAT['format_version']}"
        )
    try:
        names, words = _names(config["networks"]), config["vocabulary"]
        model, inputs = fill(ModelConfig, config["model"], "model"), fill(Inputs, config["inputs"], "inputs")
    except (KeyError, TypeError) as error:
        raise InputError(f"{path / 'config.json'}: incomplete ({error})") from None
    except InputError as error:
        raise InputError(f"{path / 'config.json'}: {error}") from None
    if network != "ensemble" and network not in names:
        raise InputError(f"network {network!r}: expected ensemble, {', '.join(names)}")
    if data is not None:
        require_same_encoder(config, Path(data))
    chosen: list[str] = names if network == "ensemble" else [network]
    where = resolve_device(device)
    vocabulary = _load_vocabulary(path / "vocabulary.json", words) if inputs.text == "words" else None
    return RetrievalModel(_load_encoders(path, chosen, model, inputs), inputs, vocabulary, where, config)


def _names(networks: Any) -> list[str]:
    """Check the names of the networks that the weights are of."""
    listed = isinstance(networks, list) and all(isinstance(name, str) for name in networks)
    if not listed or not networks or len(set(networks)) < len(networks):
        raise InputError(f"`networks` must be a list of different names, got {networks!r}")
    return list(networks)


def _locate(folder: str | os.PathLike[str], revision: str | None) -> Path:
    """Return the model folder, on this machine or fetched from a hub."""
    name = os.fspath(folder)
    if not Path(name).exists() and is_hub_id(name):
        return fetch(name, revision, FILES)
    if revision is not None:
        raise InputError(f"{folder}: `revision` is of a model on a hub (owner/name), and this is a path")
    try:
        return _find(Path(name))
    except InputError as error:
        note = "; it was taken for a path because it exists here, not for a model on a hub" * is_hub_id(name)
        raise InputError(f"{error}{note}") from None


def _find(folder: Path) -> Path:
    if folder.is_file():
        why = "a file"
        if _is_pickle(folder):
            why = "a pickled checkpoint could run code when read (`in2r import` takes those of known code)"
        raise InputError(f"{folder}: {why}; expected a model folder or a run folder")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if (folder / "config.json").is_file():
        return folder
    if (folder / "model" / "config.json").is_file():
        return folder / "model"
    if (folder / "run.json").is_file():
        raise InputError(f"{folder}: the run has no model yet; `{command_line('in2r', 'resume', folder)}` finishes it")
    raise InputError(f"{folder}: no config.json here; expected a model folder or a run folder")


def _is_pickle(file: Path) -> bool:
    return file.name.endswith((".tar", ".pth", ".pt", ".pkl"))


def _load_vocabulary(file: Path, expected: Any) -> Vocabulary:
    vocabulary = Vocabulary.load(file)
    known = expected if isinstance(expected, dict) else {}
    if vocabulary.hash != known.get("hash"):
        raise InputError(
            f"{file}: vocabulary differs from the weights' (hash {vocabulary.hash[:12]}, {len(vocabulary)} "
            f"words; expected {str(known.get('hash'))[:12]}, {known.get('words')} words)"
        )
    return vocabulary


def _load_encoders(folder: Path, names: list[str], model: ModelConfig, inputs: Inputs) -> dict[str, Backbone]:
    former = folder / FORMER_WEIGHTS
    file = former if former.is_file() else folder / WEIGHTS
    tensors, _ = load_tensors(file)
    return restore_backbones(tensors, names, model, inputs, file)


def restore_backbones(
    tensors: Mapping[str, Tensor], names: list[str], model: ModelConfig, inputs: Inputs, source: Path
) -> dict[str, Backbone]:
    """Build the named networks and give them their weights, `<name>.<parameter>`.

    Raises:
        InputError: the weights are those of other encoders; `source` is named.
    """
    encoders = {}
    for name in names:
        prefix = f"{name}."
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            with torch.device("meta"):  # sizes are compared before memory is taken for them
                build_backbone(model, inputs).load_state_dict(state, assign=True)
            with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then overwritten
                encoder = build_backbone(model, inputs)
            encoder.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{source}: weights of network {name} do not fit its settings ({reason})") from None
        encoders[name] = encoder
    return encoders

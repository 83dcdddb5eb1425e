"""`in2r import`: a checkpoint of another repository as a run folder, tested by our protocol."""

import logging
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import torch

from in2r.config import to_dict
from in2r.data.features import Features
from in2r.data.sources import open_data
from in2r.data.text.vocabulary import PackedTokens, Vocabulary
from in2r.device import device_name, hold_freed_memory, resolve_device, use_threads
from in2r.errors import InputError
from in2r.models.base import Backbone
from in2r.models.build import Inputs
from in2r.models.dual import DualEncoder
from in2r.models.encode import encode_images, encode_texts
from in2r.models.folder import restore_backbones, save_model
from in2r.models.released import Released, read_released
from in2r.models.released_weights import Sizes, fit_words, own_weights, sizes_of, unused_modules
from in2r.results.best import load_best
from in2r.results.evaluate import evaluate_run
from in2r.results.protocol import protocol
from in2r.runs.folder import RunFolder
from in2r.runs.identity import mark, versions
from in2r.runs.info import FORMAT
from in2r.runs.settings import RunConfig, resolve
from in2r.tensors import save_tensors
from in2r.training.evaluation import Rows, evaluate_split
from in2r.training.setup import Setup, open_setup
from in2r.training.train import absolute_paths, refuse_existing

log = logging.getLogger(__name__)

CHUNK = 4096
"""items whose embeddings are in memory at a time while a mean is taken"""


def import_checkpoint(
    file: str | Path, data: str | Path, vocabulary: str | Path, out: str | Path, *, device: str = "auto"
) -> dict[str, Any]:
    """Turn a checkpoint of NCR's family, SGRAF, VSE++ or IN²R's authors into a run folder with its model, and test it.

    Args:
        file: the `.pth.tar`; no code of it is run.
        data: the data folder, with the splits train, dev and test.
        vocabulary: the words that the checkpoint was trained with, in the field's JSON.
        out: the run folder; must not hold a run yet.
        device: auto, cpu, cuda, cuda:1, mps.

    Returns:
        The result of `evaluate_run` on the test split; `protocol.imported` says what the file holds.

    Raises:
        InputError: the file is of another model (the key is named), the vocabulary or the data do not fit it, or the
            folder cannot be written.
    """
    file, folder = Path(file), RunFolder(out)
    refuse_existing(folder)
    hold_freed_memory()
    released = read_released(file)
    words = Vocabulary.load(vocabulary)
    sizes = sizes_of(released, file)
    add_mask = fit_words(sizes.words, words, Path(vocabulary), file)
    config = _settings(released, sizes, data, vocabulary, device)
    setup = open_setup(config, resolve_device(device), words)
    _require_same_features(setup.inputs, sizes, setup.train.images.source, file)
    tensors = {
        f"{name}.{key}": value
        for name, weights in released.networks.items()
        for key, value in own_weights(weights, config.model, setup.inputs, f"{file}: network {name}", add_mask).items()
    }
    backbones = restore_backbones(tensors, list(released.networks), config.model, setup.inputs, file)
    backbones = {name: backbone.to(setup.device).eval() for name, backbone in backbones.items()}
    with use_threads(config.train.threads):
        _centre(backbones, setup)
        dev = setup.split("dev")
        evaluated = evaluate_split(backbones, dev, setup.texts(dev), setup.device)
    with folder.locked():
        refuse_existing(folder)  # another process may have started one since
        _write_run(folder, setup, _describe(released, file, setup), backbones, *evaluated)
        best = load_best(folder, setup)
        described = protocol(folder, setup, best)
        extra = {"protocol": described, "dev": best.dev}
        save_model(folder.model, best.backbones, config.model, setup.inputs, words, None, extra)
    return evaluate_run(folder.path)


def _settings(released: Released, sizes: Sizes, data: str | Path, vocabulary: str | Path, device: str) -> RunConfig:
    """Return the settings of a run that trains nothing: one epoch, which the import stands for."""
    precomp = open_data(data, announce=False).user_table() is None  # a pair table's dev split is used whole
    dev_rule = released.family.dev_rule if precomp else "full"
    values = {
        "data": {"path": str(data), "vocabulary": str(vocabulary), "dev_rule": dev_rule},
        "model": sizes.model,
        "method": {"name": "triplet", "warmup_epochs": 0},
        "train": {"epochs": 1, "region_drop": 0.0, "word_drop": 0.0, "device": device},
    }
    return absolute_paths(resolve(values))


def _require_same_features(inputs: Inputs, sizes: Sizes, source: str, file: Path) -> None:
    if inputs.image_dim != sizes.image_dim:
        raise InputError(
            f"{source}: features of {inputs.image_dim} dimensions, but img_enc.fc.weight of {file} reads "
            f"{sizes.image_dim}"
        )
    if sizes.regions is not None and inputs.regions != sizes.regions:
        raise InputError(
            f"{source}: {inputs.regions} regions an image, but sim_enc.v_global_w.embedding_local.1.weight of {file} "
            f"has {sizes.regions}"
        )


@torch.no_grad()
def _centre(backbones: dict[str, Backbone], setup: Setup) -> None:
    """Take the means that centred networks subtract over the train split: the files lack them.

    IN²R's authors subtract the mean of the batch, at test too; a frozen mean does not let an embedding depend on it.
    """
    centred = {name: net for name, net in backbones.items() if isinstance(net, DualEncoder) and net.image_center}
    if not centred:
        return
    log.info("the means to subtract are taken over all images and captions of train")
    images, texts = setup.train.images, setup.texts(setup.train)
    for net in centred.values():
        assert net.image_center is not None
        assert net.text_center is not None
        net.image_center.running_mean.copy_(_mean(net, images, setup, text=False))
        net.text_center.running_mean.copy_(_mean(net, texts, setup, text=True))


def _mean(net: Backbone, items: Features | PackedTokens, setup: Setup, *, text: bool) -> torch.Tensor:
    """Return the mean embedding (D,) of one side."""
    total = torch.zeros(net.dim, dtype=torch.float64)
    for some in torch.split(torch.arange(len(items)), CHUNK):
        if text:
            part = encode_texts(net, items, setup.device, some)
        else:
            assert isinstance(items, Features)
            part = encode_images(net, items, setup.device, some)
        total += part.vector.sum(0).cpu()
    return (total / len(items)).float()


def _describe(released: Released, file: Path, setup: Setup) -> dict[str, Any]:
    """Return run.json."""
    config, words = setup.config, setup.vocabulary
    assert words is not None
    with file.open("rb") as content:
        digest = file_digest(content, "sha256").hexdigest()
    info = {
        "format_version": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "device": str(setup.device),
        "device_name": device_name(setup.device),
        "threads": torch.get_num_threads(),
        "seed": config.train.seed,
        "method": released.family.name,
        "method_file": None,
        "networks": list(released.networks),
        "data": {
            "path": str(setup.source.path),
            "fingerprint": setup.source.fingerprint(),
            "encoder": setup.source.encoder(),
        },
        "noise": None,
        "vocabulary": {"hash": words.hash, "words": len(words)},
        "word_vectors": None,
        "training_pairs": len(setup.train.image_of_caption),
        "plan": {"warmup_epochs": 0},
        "settings": to_dict(config),
        "imported": {
            "file": file.name,
            "sha256": digest,
            "repository": released.family.name,
            "epoch": released.epoch,
            "best_rsum": released.best_rsum,
            "options": released.options,
            "left_out": [*released.left_out, *unused_modules(released)],
        },
    }
    return {**info, "mark": sha256(f"{mark(config, info)} {digest}".encode()).hexdigest()}


def _write_run(
    folder: RunFolder,
    setup: Setup,
    info: dict[str, Any],
    backbones: dict[str, Backbone],
    rows: Rows,
    health: dict[str, Any],
) -> None:
    """Write the run: its words, description, best weights and the one line of its record; settings last."""
    assert setup.vocabulary is not None
    names = list(backbones)
    setup.vocabulary.save(folder.vocabulary_file)
    folder.write_info(info)
    tensors = {f"{name}.{key}": value for name, net in backbones.items() for key, value in net.state_dict().items()}
    about = {"rsum": rows["ensemble"]["rsum"], "epoch": 1, "dev": rows, "networks": names}
    save_tensors(folder.best_file, tensors, {**about, "run": info["mark"], "data": info["data"]["fingerprint"]["hash"]})
    folder.append({"epoch": 1, "phase": "imported", "steps": dict.fromkeys(names, 0), "dev": rows, **health})
    folder.write_config(setup.config)  # last: with this file the folder holds a run

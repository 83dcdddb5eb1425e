"""The model card: what a model is, how it is used, what it was trained on and how good it is, from its config.json."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from in2r.data.encoder_record import SIDES, label
from in2r.data.noise.index import describe_noise
from in2r.models.build import INTERACTION
from in2r.models.description import base_name, rows_of

TAGS = ("image-text-retrieval", "cross-modal-retrieval", "noisy-correspondence")
TASK = {"type": "image-text-retrieval", "name": "Image-text retrieval"}
SHOWN = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
EXAMPLE_REGIONS = 36
"""of an image in the example of a model that takes any number; the field's region features have as many"""

TRAINED = """\
# Image-text retrieval model

Two encoders, trained with IN²R's tools: an image and a caption that belong together have a high similarity.
{networks}
"""
IMPORTED = """\
# Image-text retrieval model, imported

Weights of {repository}, from the checkpoint {file} (SHA-256 {sha256}), brought into IN²R's format by `in2r import`.
This project did not train them. What they were trained on, with which mismatches, and their licence are for that
repository to say. Stored with them (None: nothing is): epoch {epoch}, best rSum {best_rsum} on its own dev split.
"""
USE = """
## Use

```python
import numpy as np
import in2r

model = in2r.load("{at}")
numbers = np.random.default_rng(0)  # in place of your features: they must be of the encoder named below
images = numbers.standard_normal({images}, dtype=np.float32)  # {shapes}
captions = {captions}
print(model.score(images, captions).shape)  # (2, 2): images x captions
```

{vectors}

## Features

{features}
"""
DATA = """
## Data

{name} (fingerprint {fingerprint}){counts}; captions as {captions_as}.

Injected mismatches: {noise}.
"""
TRAINING = """
## Training

Method {method}, {epochs_done} of {epochs} epochs, {steps} optimiser steps per network, seed {seed}.
Selected: epoch {epoch}, by the {rule}.
"""
DEV = """
## Results on the dev split

The epoch was selected on this split, so the figures are a little too good{hint}.

{table}
"""
DEV_IMPORTED = """
## Results on the dev split, by this project's code

{table}
"""
TEST = """
## Results on the {split} split

{images:,} images, {captions:,} captions, {folds}; {tie_rule}; identical copies of the right item count as {counted_as}.

{table}
"""
LIMITS = """
## Intended use and limits

- Search and ranking among images and captions like those of the training data, with features from the
  same extractor; others of the same dimension are not recognised and give meaningless vectors.
- Similarities order candidates. They are no probabilities, and a threshold found on one data set does not
  carry over to another.
- Recall depends on the number of candidates, the data, the noise protocol and ratio, and the selection rule:
  compare only figures that agree in all of them (config.json has them).
- What the captions leave out or get wrong, biases about people included, the model has learnt too.
"""


def model_card(info: Mapping[str, Any], at: str = "this folder", test: Mapping[str, Any] | None = None) -> str:
    """Return the card's text as Markdown.

    Args:
        info: the content of config.json; what it lacks is left out.
        at: what the example loads: a folder or a hub id.
        test: a result of `in2r eval`, if there is one.
    """
    protocol = info.get("protocol") or {}
    imported = protocol.get("imported")
    parts = [_head(info, imported), _use(info, protocol, at)]
    if protocol and imported is None:
        parts += [_data(info, protocol), _training(protocol)]
    if "dev" in info:
        hint = "" if test is not None else "; test figures come from `in2r eval RUN`"
        parts.append((DEV if imported is None else DEV_IMPORTED).format(table=_table(info["dev"]), hint=hint))
    if test is not None:
        evaluated = test["protocol"]["evaluated"]
        folds = "all at once" if evaluated["folds"] == 1 else f"mean of {evaluated['folds']} folds"
        table = _table(rows_of(test["rows"], info["networks"]))
        counted = evaluated["duplicates"]["counted_as"]
        parts.append(TEST.format(**{**evaluated, "folds": folds}, counted_as=counted, table=table))
    return "".join([*parts, LIMITS])


def front_matter(
    info: Mapping[str, Any], repo: str, licence: str | None = None, test: Mapping[str, Any] | None = None
) -> str:
    """Return the card's head for a hub: library, licence, tags, and the results with their protocol (model-index)."""
    protocol = info.get("protocol") or {}
    tags = [*TAGS, *([protocol["method"]] if protocol else [])]
    values: dict[str, Any] = {"library_name": "in2r", "tags": tags}
    if licence is not None:
        values["license"] = licence
    if protocol:
        name = base_name(protocol["data"]["path"])
        dev = {"split": "dev", "selected_on_this_split": True}
        results = [_indexed(name, info["dev"], info["networks"], {**_block(protocol), **dev})]
        if test is not None:
            args = {**_block(test["protocol"]), **test["protocol"]["evaluated"]}
            results.append(_indexed(name, test["rows"], info["networks"], args))
        values["model-index"] = [{"name": repo.rpartition("/")[2], "results": results}]
    values = json.loads(json.dumps(values))  # what is in there twice would become a YAML alias
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def _block(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the meaning of a figure, in short; config.json has it in full."""
    return {
        "fingerprint": protocol["data"]["fingerprint"],
        "captions_as": protocol["data"]["captions_as"],
        "injected_noise": describe_noise(protocol["noise"]),
        "method": protocol["method"],
        "seed": protocol["seed"],
        "selection": protocol["selection"],
    }


def _indexed(name: str, rows: Mapping[str, Any], networks: list[str], args: dict[str, Any]) -> dict[str, Any]:
    row = list(rows_of(rows, networks).values())[-1]  # of the ensemble, where there is one
    ways = {"i2t": "image to text", "t2i": "text to image"}
    names = {key: f"{ways[key[:3]]} R@{key[5:]}" for key in SHOWN if key != "rsum"} | {"rsum": "rSum"}
    return {
        "task": TASK,
        "dataset": {"name": name, "type": name, "split": args["split"], "args": args},
        "metrics": [{"type": key, "name": names[key], "value": round(row[key], 2)} for key in SHOWN],
    }


def _head(info: Mapping[str, Any], imported: Mapping[str, Any] | None) -> str:
    if imported is not None:
        return IMPORTED.format(**imported)
    networks, length = info["networks"], len(info["networks"]) * info["model"]["dim"]
    if len(networks) == 1:
        return TRAINED.format(networks=f"Network: {networks[0]}.")
    together = f"their ensemble is one vector of length {length} per item"
    if _interacts(info):
        together = "the similarity is the mean of theirs"
    return TRAINED.format(networks=f"Networks: {' and '.join(networks)}; {together}.")


def _interacts(info: Mapping[str, Any]) -> bool:
    return bool(info["model"]["backbone"] in INTERACTION)


def _use(info: Mapping[str, Any], protocol: Mapping[str, Any], at: str) -> str:
    inputs = info["inputs"]
    image_dim, regions, words = inputs["image_dim"], inputs["regions"], inputs["text"] == "words"
    flat = regions == 1
    texts = '["a dog runs on the grass", "two people cook"]'
    return USE.format(
        at=at,
        images=(2, image_dim) if flat else (2, regions or EXAMPLE_REGIONS, image_dim),
        shapes=f"(N, {image_dim})" if flat else f"(N, regions, {image_dim})",
        captions=texts if words else f"numbers.standard_normal((2, {inputs['text_dim']}), dtype=np.float32)",
        vectors="Every word is compared with the regions, so only `score` gives the similarities."
        if _interacts(info)
        else "`encode_images` and `encode_captions` give unit vectors whose inner product is the similarity.",
        features=_features(protocol),
    )


def _features(protocol: Mapping[str, Any]) -> str:
    """Name the encoders of the features, with the fingerprint of their weights and what they are fed with."""
    record = protocol["data"]["encoder"] if protocol else None
    if record is None:
        return "The data do not say which encoder made the features of the training."
    lines = []
    for side in SIDES:
        if (made := record[side]) is not None:
            said = [f"weights SHA-256 {str(made.get('weights_sha256'))[:12]}"]
            said += [f"{name} {made[name]}" for name in ("preprocessing", "tokenizer", "pooling") if name in made]
            lines.append(f"- {side}: {label(made)} ({'; '.join(said)})")
    return "\n".join([*lines, "", "Features of another encoder are refused where `encoder.json` names it."])


def _data(info: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    data, train = protocol["data"], info.get("train")  # absent from models of an older in2r
    return DATA.format(
        name=base_name(data["path"]),
        fingerprint=data["fingerprint_in_training"][:12],
        counts="" if train is None else f": {train['images']:,} images, {train['pairs']:,} training pairs",
        captions_as=data["captions_as"],
        noise=describe_noise(protocol["noise"]),
    )


def _training(protocol: Mapping[str, Any]) -> str:
    steps = " / ".join(f"{steps:,}" for steps in protocol["steps_per_network"].values())
    said = TRAINING.format(**{**protocol, **protocol["selection"], "steps": steps})
    words = protocol["data"]["word_vectors"]
    return said + (f"Initial word vectors: {words}.\n" if words else "")


def _table(rows: Mapping[str, Any]) -> str:
    """Return recalls as a table."""
    lines = [f"| network | {' | '.join(SHOWN)} |", "| --- " * (len(SHOWN) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{row[column]:.1f}' for column in SHOWN)} |")
    return "\n".join(lines)

"""The model folder of a run, with its model card."""

from pathlib import Path
from typing import Any

from in2r.data.encoder_record import SIDES, label
from in2r.models.folder import save_model
from in2r.results.best import Best, load_best
from in2r.results.protocol import describe_noise, protocol
from in2r.runs.folder import RunFolder
from in2r.training.evaluation import Rows
from in2r.training.setup import Setup

CARD = """\
# Image-text retrieval model

Two encoders into one unit sphere, trained with IN²R's tools: an image and a caption that belong together have
a large inner product. Two networks, A and B; their ensemble is one vector of length {length} per item.

    import in2r
    model = in2r.load("this folder")
    images = model.encode_images(features)      # {images}
    captions = model.encode_captions(captions)  # {captions}
    similarity = images @ captions.T

## Data
{data}

Injected mismatches: {noise}.

## Training
Method {method}, {done} of {epochs} epochs, {steps} optimiser steps per network, seed {seed}.
Selected: epoch {epoch}, by the {rule}.
{words}
## Results on the dev split
The epoch was selected on this split, so the figures are a little too good; test figures come from
`in2r eval RUN`.

{table}

## Intended use and limits
- Search and ranking among images and captions like those of the training data, with features from the
  same extractor{encoder}; others of the same dimension are not recognised and give meaningless vectors.
- Similarities order candidates. They are no probabilities, and a threshold found on one data set does not
  carry over to another.
- Recall depends on the number of candidates, the data, the noise protocol and ratio, and the selection rule:
  compare only figures that agree in all of them (config.json has them).
- What the captions leave out or get wrong, biases about people included, the model has learnt too.
"""


def export_model(folder: RunFolder, setup: Setup) -> Path:
    """Write RUN/model from the best validation checkpoint, with a model card; return the folder.

    Args:
        folder: the run; locked meanwhile, so not by the caller.
        setup: its data.

    Raises:
        InputError: another process is working on the run, no epoch has ended, or something else is called RUN/model.
    """
    with folder.locked():
        best = load_best(folder, setup)
        described = protocol(folder, setup, best)
        return save_model(
            folder.model,
            best.backbones,
            setup.config.model,
            setup.inputs,
            setup.vocabulary,
            _card(setup, best, described),
            {"protocol": described, "dev": best.dev},
        )


def _card(setup: Setup, best: Best, described: dict[str, Any]) -> str:
    inputs, data = setup.inputs, described["data"]
    words = data["word_vectors"]
    return CARD.format(
        length=2 * setup.config.model.dim,
        images=inputs.image_shapes,
        encoder=_encoder(data["encoder"]),
        captions="list of N texts" if inputs.text == "words" else f"(N, {inputs.text_dim})",
        data=(
            f"{Path(data['path']).name} (fingerprint {data['fingerprint_in_training'][:12]}): "
            f"{len(setup.train.images):,} images, {len(setup.train.image_of_caption):,} training pairs; "
            f"captions as {data['captions_as']}."
        ),
        noise=describe_noise(described["noise"]),
        method=described["method"],
        done=described["epochs_done"],
        epochs=described["epochs"],
        steps=" / ".join(f"{steps:,}" for steps in described["steps_per_network"].values()),
        seed=described["seed"],
        epoch=best.epoch,
        rule=described["selection"]["rule"],
        words=f"Initial word vectors: {words}.\n" if words else "",
        table=dev_table(best.dev),
    )


def _encoder(record: dict[str, Any] | None) -> str:
    """Name the encoders of the features in brackets, where the data say."""
    sides = [label(record[side]) for side in SIDES if record is not None and record[side] is not None]
    return f" ({', '.join(sides)})" if sides else ""


def dev_table(rows: Rows) -> str:
    """Return the recalls on dev as a table of a model card."""
    columns = ["i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum"]
    lines = [f"| network | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{row[column]:.1f}' for column in columns)} |")
    return "\n".join(lines)

"""The model folder of a run, with its model card."""

from pathlib import Path

from in2r.models.folder import save_model
from in2r.results.best import load_best
from in2r.results.protocol import protocol
from in2r.runs.folder import RunFolder
from in2r.training.setup import Setup


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
            None,
            {"protocol": described, "dev": best.dev, "train": _counts(setup)},
        )


def _counts(setup: Setup) -> dict[str, int]:
    """Say on how much was trained."""
    return {"images": len(setup.train.images), "pairs": len(setup.train.image_of_caption)}

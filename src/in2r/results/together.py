"""`in2r eval RUN RUN`: the recalls of several runs' mean similarity, such as of SGR and SAF: SGRAF."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.data.fingerprint import changed_splits
from in2r.data.noise import describe_noise
from in2r.device import use_threads
from in2r.errors import InputError
from in2r.files import require_writable, write_json
from in2r.models.base import Backbone
from in2r.results.best import Best
from in2r.results.evaluate import chance_of, choose_copies, describe_split, open_best, require_folds, result_file
from in2r.results.protocol import protocol
from in2r.runs.folder import RunFolder
from in2r.training.evaluation import encode_split, recalls_of
from in2r.training.setup import Setup

TOGETHER = "together"
"""the row of the mean similarity of all runs"""
MARK = 8
"""characters of another run's mark in the result's name, so that runs in folders of one name have a result each"""


@dataclass(frozen=True)
class Run:
    """One of the runs, opened."""

    name: str
    folder: RunFolder
    setup: Setup
    best: Best

    @property
    def backbones(self) -> list[Backbone]:
        """Return its networks."""
        return list(self.best.backbones.values())


def evaluate_runs(
    paths: Sequence[str | Path],
    split: str = "test",
    folds: int = 1,
    *,
    duplicates: str = "auto",
    device: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> dict[str, Any]:
    """Evaluate the mean similarity of several runs on one split, and write it into the first run's folder.

    S = 1/n Σ_r S_r, with S_r the mean similarity of the networks of run r: a run of two networks weighs as much as a
    run of one. Each run encodes captions with its own vocabulary. The file is
    result_<split>[_<folds>fold]_with_<name>-<mark>.json, with name and mark of every other run.

    Args:
        paths: the run folders, two or more, of backbones whose similarities have one scale.
        split: as in `evaluate_run`, and so is all else.
        folds: likewise.
        duplicates: likewise.
        device: another device than the first run's setting.
        force: use data that differ from those of the training.
        unfinished: take the best epoch so far of a run that has not ended.

    Returns:
        `rows` (name of each run, "together" → recalls), `chance`, `runs` (name → `path`, `protocol`), `file`.

    Raises:
        InputError: as `evaluate_run`; or a run that is given twice, or runs of other data, noise or scales, by name.
    """
    runs = _open(paths, device, force, unfinished)
    first = runs[0]
    for other in runs[1:]:
        _require_alike(first, other)
    pairs = [run.setup.split(split) for run in runs]
    require_folds(pairs[0], folds)
    networks = [backbone for run in runs for backbone in run.backbones]
    with use_threads(first.setup.config.train.threads):
        copies, counted = choose_copies(pairs[0], first.setup.texts(pairs[0]), duplicates)
        encoded = [
            encode_split(f"{name} of {run.folder.path}", backbone, given, run.setup.texts(given), run.setup.device)
            for run, given in zip(runs, pairs, strict=True)
            for name, backbone in run.best.backbones.items()
        ]
        recalls = recalls_of(networks, encoded, pairs[0], folds, copies, _means([len(run.backbones) for run in runs]))
    evaluated = describe_split(pairs[0], folds, counted)
    file = _file(runs, pairs[0].name, folds)
    result = {
        "rows": dict(zip([*(run.name for run in runs), TOGETHER], recalls[len(networks) :], strict=True)),
        "chance": chance_of(pairs[0], folds, copies),
        "runs": {
            run.name: {
                "path": str(run.folder.path),
                "protocol": {**protocol(run.folder, run.setup, run.best), "evaluated": evaluated},
            }
            for run in runs
        },
    }
    write_json(file, result)
    return {**result, "file": str(file)}


def _open(paths: Sequence[str | Path], device: str | None, force: bool, unfinished: bool) -> list[Run]:
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.resolve() in found:
            raise InputError(f"{path}: given twice; expected different runs")
        found[path.resolve()] = path
    require_writable(RunFolder(paths[0]).require().path)
    names = _names(found)
    runs = []
    for path, name in zip(found.values(), names, strict=True):
        folder, setup, best = open_best(path, device, force, unfinished)
        device = device or str(setup.device)  # all on that of the first
        runs.append(Run(name, folder, setup, best))
    return runs


def _names(paths: Collection[Path]) -> list[str]:
    """Return the folders' names; where two have one name, or it is that of the last row, the whole paths."""
    names = [path.name for path in paths]
    return names if len({*names, TOGETHER}) > len(names) else [str(path) for path in paths]


def _require_alike(one: Run, other: Run) -> None:
    """Refuse runs that were not trained on the same pairs, or whose similarities have no common scale."""
    mine, its = one.setup, other.setup
    a, b = mine.config, its.config
    differ = []
    if a.data.caption_vectors != b.data.caption_vectors or mine.inputs.text != its.inputs.text:
        differ.append(f"the captions ({_captions(mine)}, {_captions(its)})")
    else:
        splits = changed_splits(mine.source.fingerprint(), its.source.fingerprint())
        differ += [f"the data ({', '.join(splits)})"] * bool(splits)
    if a.data.dev_rule != b.data.dev_rule:
        differ.append(f"data.dev_rule ({a.data.dev_rule}, {b.data.dev_rule})")
    noises = [
        "not known, imported" if run.folder.info().get("imported") else describe_noise(run.setup.noise_record())
        for run in (one, other)
    ]
    if noises[0] != noises[1]:
        differ.append(f"the noise ({noises[0]}; {noises[1]})")
    scales = [(net.interacts, net.bounded) for net in (one.backbones[0], other.backbones[0])]
    if scales[0] != scales[1]:
        differ.append(f"the scale of the similarity (model.backbone {a.model.backbone}, {b.model.backbone})")
    if differ:
        raise InputError(
            f"{one.folder.path} and {other.folder.path}: a mean similarity needs runs on the same pairs, of one scale; "
            f"they differ in {'; '.join(differ)}"
        )


def _captions(setup: Setup) -> str:
    return "words" if setup.inputs.text == "words" else f"vectors {setup.config.data.caption_vectors}"


def _means(networks: Sequence[int]) -> list[list[int]]:
    """Return the networks of each run, and then of all runs, in which each run counts alike.

    Args:
        networks: how many each run has; they stand one after the other.
    """
    starts = [sum(networks[:place]) for place in range(len(networks))]
    each = [list(range(start, start + count)) for start, count in zip(starts, networks, strict=True)]
    turns = math.lcm(*networks)
    return [*each, [place for own in each for place in own * (turns // len(own))]]


def _file(runs: Sequence[Run], split: str, folds: int) -> Path:
    """Return where the result lies: beside the first run's own."""
    own = result_file(runs[0].folder, split, folds)
    others = "_".join(f"{run.folder.path.resolve().name}-{run.folder.info()['mark'][:MARK]}" for run in runs[1:])
    return own.with_name(f"{own.stem}_with_{others}.json")

"""Start a run, or resume one: the two entry points of training."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from in2r.config import to_dict, with_values
from in2r.data.encoder_record import other_encoders
from in2r.data.fingerprint import changed_splits
from in2r.data.noise import save_index
from in2r.data.rows import read_text
from in2r.data.text.vocabulary import Vocabulary
from in2r.device import as_current, device_name, hold_freed_memory, resolve_device, use_threads
from in2r.errors import InputError, command_line
from in2r.files import write_text
from in2r.methods import Method, warmup_of
from in2r.methods.registry import absolute_name, method_file
from in2r.processes import Processes
from in2r.runs.folder import RunFolder
from in2r.runs.identity import changed_settings, mark, require_own, versions
from in2r.runs.info import FORMAT
from in2r.runs.settings import RunConfig, paths
from in2r.tensors import load_tensors
from in2r.training.launch import joined
from in2r.training.loop import Display, Trainer
from in2r.training.plan import Plan, make_plan, warn_of_full_disk
from in2r.training.setup import Setup, open_setup
from in2r.training.together import require_same

log = logging.getLogger(__name__)


class Silent:
    """A display that shows nothing."""

    def plan(self, plan: Plan) -> None:
        """Show nothing."""

    def epoch(self, epoch: int, epochs: int, phase: str, steps: int, done: int) -> None:
        """Show nothing."""

    def step(self) -> None:
        """Show nothing."""

    def record(self, record: dict[str, Any]) -> None:
        """Show nothing."""


def start_run(
    path: str | Path,
    config: RunConfig,
    display: Display | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> RunFolder:
    """Train a new run in a new folder, to the end.

    Args:
        path: the run folder; must not hold a run yet.
        config: the resolved settings.
        display: shows its progress.
        on_plan: is given the plan before the first step.

    Raises:
        InputError: the folder holds a run, its path cannot be one, or the data cannot be used.
    """
    folder = RunFolder(path)
    hold_freed_memory()
    with joined() as processes, ExitStack() as held:

        def opened() -> Setup:
            if processes.first:
                refuse_existing(folder)
            device = resolve_device(config.train.device, processes.local)
            held.enter_context(as_current(device))
            return replace(open_setup(absolute_paths(config), device), processes=processes)

        setup = processes.together(opened)
        require_same(setup)

        def prepare() -> Trainer:
            held.enter_context(use_threads(config.train.threads))
            if not processes.first:
                return Trainer(folder, setup, Silent())
            held.enter_context(folder.locked())
            return _first_start(folder, setup, display or Silent(), on_plan)

        processes.together(prepare).run()
    return folder


def plan_run(config: RunConfig, path: str | Path, processes: int = 1) -> Plan:
    """Say what a run would need, without starting it.

    Args:
        config: the resolved settings.
        path: a folder on the disk where the run would lie.
        processes: how many would train it.

    Raises:
        InputError: as `start_run`, but for the run folder.
    """
    setup = open_setup(absolute_paths(config), resolve_device(config.train.device))
    return make_plan(Trainer(RunFolder(path), replace(setup, processes=Processes(count=processes)), Silent()))


def _first_start(folder: RunFolder, setup: Setup, display: Display, on_plan: Callable[[Plan], None] | None) -> Trainer:
    """Make a locked folder a run, and say what is known of it before the first step."""
    config = setup.config
    refuse_existing(folder)  # another process may have started one since
    if setup.vocabulary is not None:
        setup.vocabulary.save(folder.vocabulary_file)
    if setup.noise is not None:  # the run must outlive the file that it was given
        save_index(folder.noise_file, setup.noise)
    if config.data.leave_out is not None:
        write_text(folder.left_out_file, read_text(Path(config.data.leave_out)))
    trainer = Trainer(folder, setup, display)
    plan = make_plan(trainer)
    folder.write_info(_describe(setup, trainer, plan))
    folder.write_config(config)  # last: with this file the folder holds a run
    if on_plan is not None:
        on_plan(plan)
    warn_of_full_disk(plan, folder.path)
    why = ends_within_warmup(trainer.method, config.train.epochs)
    if why:
        log.warning("no main phase: %s", why)
    return trainer


def _describe(setup: Setup, trainer: Trainer, plan: Plan) -> dict[str, Any]:
    """Return what run.json says of a run that starts."""
    vocabulary, config = setup.vocabulary, setup.config
    info = {
        "format_version": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "device": str(setup.device),
        "device_name": device_name(setup.device),
        "threads": torch.get_num_threads(),
        "seed": config.train.seed,
        "method": trainer.method.label,
        "method_file": method_file(config.method.name),
        "networks": list(trainer.names),
        "processes": setup.processes.count,
        "data": {
            "path": str(setup.source.path),
            "fingerprint": setup.source.fingerprint(),
            "encoder": setup.source.encoder(),
        },
        "noise": setup.noise_record(),
        "vocabulary": None if vocabulary is None else {"hash": vocabulary.hash, "words": len(vocabulary)},
        "word_vectors": trainer.word_coverage,
        "training_pairs": len(trainer.data.pairs),
        "plan": plan.record(),
        "settings": to_dict(config),
    }
    return {**info, "mark": mark(config, info)}


def ends_within_warmup(method: Method, epochs: int) -> str:
    """Say why a run ends before its method divides the pairs; an empty string if it does not, or never divides them."""
    warmup, _ = warmup_of(method)
    if not method.divides() or warmup < epochs:
        return ""
    key = "warmup_epochs" if method.config.common_warmup is None else "common_warmup"
    return f"train.epochs={epochs} ends within method.{key}={warmup}, so the pairs are never divided"


def resume_run(path: str | Path, display: Display | None = None, *, force: bool = False) -> RunFolder:
    """Resume an interrupted run; a finished one is not changed.

    Args:
        path: the run folder.
        display: shows its progress.
        force: resume although settings or data have changed since the start.

    Raises:
        InputError: no run is here, or an imported one, another process works on it, a file of it is gone, or its
            settings or data have changed.
    """
    folder = RunFolder(path).require()
    if folder.info().get("imported"):
        raise InputError(f"{folder.path}: an imported checkpoint (`in2r import`), which cannot be trained on")
    hold_freed_memory()
    with joined() as processes, ExitStack() as held:

        def prepare() -> Trainer:
            if processes.first:
                held.enter_context(folder.locked())
            held.enter_context(use_threads(folder.config().train.threads))
            setup = replace(reopen(folder, force=force, local=processes.local), processes=processes)
            held.enter_context(as_current(setup.device))
            trainer = Trainer(folder, setup, display or Silent() if processes.first else Silent())
            if processes.first:
                _continue(folder, trainer, force)
            return trainer

        trainer = processes.together(prepare)
        require_same(trainer.setup)
        trainer.run()
    return folder


def _continue(folder: RunFolder, trainer: Trainer, force: bool) -> None:
    """Return to the newest checkpoint; note what has changed since the start."""
    restored = trainer.resume()
    _require_whole(folder, trainer, restored)
    changes = [*trainer.setup.changes, *([] if restored else _other_words(folder, trainer, force))]
    if changes and trainer.state.epoch < trainer.config.train.epochs:
        _note_changes(folder, changes)


def _require_whole(folder: RunFolder, trainer: Trainer, restored: bool) -> None:
    """Refuse a run of which a file is missing or damaged: it would be missed only at the end, or never."""
    ended = len([record for record in folder.records() if "taken_over" not in record])
    if not restored and ended > 1:  # one record may come before the first checkpoint
        raise InputError(
            f"{folder.checkpoints}: no checkpoint, but {ended} epochs have ended; `in2r eval` and `in2r score` need "
            f"none; to train from the start, remove {folder.log_file.name} too"
        )
    if trainer.state.best["epoch"] is None:
        return
    try:
        _, meta = load_tensors(folder.best_file)
    except InputError as error:
        raise InputError(
            f"{error}, but epoch {trainer.state.best['epoch']} was the best; put it back, or, to train from the start, "
            f"remove {folder.checkpoints} and {folder.log_file.name}"
        ) from None
    require_own(folder, folder.best_file, meta)


def reopen(folder: RunFolder, *, device: str | None = None, force: bool = False, local: int = 0) -> Setup:
    """Open the data of a run again and check that they are the same.

    Args:
        folder: the run.
        device: another device than the run's setting.
        force: only warn where settings, data or noise differ.
        local: the number of this process on this machine, where several train together.

    Raises:
        InputError: settings, features, captions, noise index or the method's own file differ from those at the
            start of the run.
    """
    config, info = folder.config(), folder.info()
    if config.data.leave_out is not None:  # the run's own copy
        config = with_values(config, {"data.leave_out": str(folder.left_out_file)})
    vocabulary = None if info["vocabulary"] is None else _own_vocabulary(folder, info["vocabulary"])
    noise_file = None if info["noise"] is None else _own_noise(folder, info["noise"])
    setup = open_setup(
        config, resolve_device(device or config.train.device, local), vocabulary, noise_file, first=False
    )
    faults = [f"setting {name}" for name in changed_settings(info["settings"], config)]
    changed = changed_splits(info["data"]["fingerprint"], setup.source.fingerprint())
    if changed:
        faults.append(f"the features or captions of {', '.join(changed)} in {setup.source.path}")
    faults += other_encoders(info["data"].get("encoder"), setup.source.encoder())
    noise = setup.noise_record()
    if (noise or {}).get("sha256") != (info["noise"] or {}).get("sha256"):
        faults.append(f"the noise index {noise_file or config.noise.index}")
    own_method = method_file(config.method.name)
    if own_method is not None and own_method["sha256"] != (info.get("method_file") or {}).get("sha256"):
        faults.append(f"the method's file {own_method['path']}")
    _refuse_changes(folder, faults, force)
    return replace(setup, changes=tuple(faults))


def _other_words(folder: RunFolder, trainer: Trainer, force: bool) -> list[str]:
    """Refuse other initial word vectors than at the start, or name them; a checkpoint has them."""
    recorded, now = folder.info()["word_vectors"] or {}, trainer.word_coverage or {}
    if recorded.get("sha256") == now.get("sha256"):
        return []
    changes = [f"the word vectors {trainer.config.data.word_vectors}"]
    _refuse_changes(folder, changes, force)
    return changes


def _note_changes(folder: RunFolder, changes: list[str]) -> None:
    """Keep in run.json the changes in spite of which training continued: every result names them."""
    info = folder.info()
    folder.write_info({**info, "forced": list(dict.fromkeys([*info.get("forced", []), *changes]))})


def _refuse_changes(folder: RunFolder, changes: list[str], force: bool) -> None:
    if changes and not force:
        raise InputError(
            f"{folder.path}: changed since the start of the run: {' and '.join(changes)}; --force uses them"
        )
    for change in changes:
        log.warning("%s: changed since the start of the run: %s; used because of --force", folder.path, change)


def _own_vocabulary(folder: RunFolder, recorded: dict[str, Any]) -> Vocabulary:
    """Read the run's words and check that they are those of its start."""
    vocabulary = Vocabulary.load(folder.vocabulary_file)
    if vocabulary.hash != recorded["hash"]:
        raise InputError(
            f"{folder.vocabulary_file}: vocabulary differs (hash {vocabulary.hash[:12]}, {len(vocabulary)} words; "
            f"the run started with {recorded['hash'][:12]}, {recorded['words']} words)"
        )
    return vocabulary


def _own_noise(folder: RunFolder, recorded: dict[str, Any]) -> Path:
    """Return the run's own copy of its noise index."""
    if not folder.noise_file.is_file():
        raise InputError(f"{folder.noise_file}: no such file; put the run's copy of {recorded['file']} back")
    return folder.noise_file


def refuse_existing(folder: RunFolder) -> None:
    """Refuse a folder that holds a run or other files, or that no checkpoint could be read from again."""
    try:
        str(folder.path.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(f"{folder.path}: not UTF-8, which safetensors files need; give another folder") from None
    if folder.exists():
        resume = command_line("in2r", "resume", folder.path)
        raise InputError(f"{folder.path}: holds a run already; `{resume}` resumes it; for a new run, give a new folder")
    foreign = folder.foreign_files()
    if foreign:
        raise InputError(f"{folder.path}: holds {foreign[0]}, which a new run could write over; give a new folder")


def absolute_paths(config: RunConfig) -> RunConfig:
    """Make the paths of a config absolute, so that a run can be resumed from any folder."""
    values = {name: str(Path(path).absolute()) for name, path in paths(config).items()}
    return with_values(config, {**values, "method.name": absolute_name(config.method.name)})

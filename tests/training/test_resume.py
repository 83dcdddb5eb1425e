"""A run that is killed is resumed bit-identically; bad checkpoints, full disks, two processes."""

import errno
import fcntl
import logging
import os
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

import tiny_engine
from in2r.data.text.vocabulary import Vocabulary
from in2r.data.text.word_vectors import load_word_vectors
from in2r.errors import InputError
from in2r.results import evaluate, evaluate_run, judged, score_run
from in2r.runs.checkpoints import checkpoints, save_checkpoint, save_divisions
from in2r.runs.folder import RunFolder
from in2r.runs.settings import CheckpointConfig, RunConfig
from in2r.tensors import load_tensors, save_tensors
from in2r.testing.tiny import make_data, make_noise
from in2r.training import loop, train
from in2r.training.setup import open_setup
from in2r.training.train import Silent, reopen, resume_run, start_run
from tiny_engine import assert_same, resume_and_die, settings, start_and_die


@pytest.fixture(scope="module")
def configs(data: Path, noise: Path) -> dict[str, RunConfig]:
    index = f"noise.index={noise}"
    return {
        "interleaved": settings(data, "in2r", index),
        "alternating": settings(data, "in2r", index, "train.order=alternating", "checkpoint.keep=1"),
        "one mode": settings(data, "in2r", index, "partition.single_mode=warmup"),
        "in2r/released": settings(data, "in2r/released", index, "method.memory_size=16"),
        "words": settings(
            data, "in2r", index, "train.learning_rate=0.003", "method.memory_unique=true", "train.seed=4", words=True
        ),
    }


@pytest.fixture(scope="module")
def whole(configs: dict[str, RunConfig], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the run of each kind that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    return {name: start_run(folder / name, config).path for name, config in configs.items()}


@pytest.fixture
def copied(whole: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return Path(shutil.copytree(whole["interleaved"], tmp_path / "copy"))


def rewind(folder: Path, count: int = 1) -> None:
    """Take the newest checkpoints away, so that there is something left to do."""
    for path in checkpoints(folder / "checkpoints")[-count:]:
        path.unlink()


def test_the_runs_do_what_they_are_to_test(whole: dict[str, Path]) -> None:
    one_mode = RunFolder(whole["one mode"]).records()
    assert any(record[f"single_mode_{name}"] for record in one_mode[1:] for name in "AB")
    for kind, folder in whole.items():
        if kind == "one mode":
            continue
        records = RunFolder(folder).records()
        assert [record["phase"] for record in records] == ["warm-up", "main", "main"]
        assert "loss_rect_A" in records[-1], kind
        assert records[-1]["memory_fill_A"] > 0.3
        assert 0 < records[-1]["clean_fraction_A"] < 1
        assert len(checkpoints(folder / "checkpoints")) == (1 if kind == "alternating" else 2)


def test_the_same_seed_gives_the_same_run(
    whole: dict[str, Path], configs: dict[str, RunConfig], tmp_path: Path
) -> None:
    torch.manual_seed(12345)
    start_run(tmp_path / "again", configs["interleaved"])
    assert_same(tmp_path / "again", whole["interleaved"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "point", "count"),
    [
        ("interleaved", "step", 1),  # before any checkpoint
        ("interleaved", "step", 7),  # within the warm-up
        ("interleaved", "partition", 2),  # A has judged the pairs, B has not
        ("interleaved", "step", 14),  # within the main phase
        ("interleaved", "step", 999),  # the last one: how many there are depends on roundings
        ("interleaved", "append", 2),  # half a line in the record
        ("interleaved", "write", 3),  # half a file
        ("interleaved", "best", 1),  # best weights written, no checkpoint
        ("interleaved", "checkpoint", 4),
        ("alternating", "step", 13),
        ("alternating", "step", 18),
        ("alternating", "checkpoint", 5),  # only one is kept
        ("one mode", "step", 15),
        ("in2r/released", "step", 14),
        ("in2r/released", "partition", 3),
        ("words", "step", 15),
    ],
)
def test_a_killed_run_ends_bit_identically(
    whole: dict[str, Path],
    configs: dict[str, RunConfig],
    killed: Callable[..., None],
    tmp_path: Path,
    kind: str,
    point: str,
    count: int,
) -> None:
    folder = tmp_path / "run"
    if point == "step":
        count = min(count, sum(sum(record["steps"].values()) for record in RunFolder(whole[kind]).records()))
    killed(start_and_die, folder, configs[kind], point, count)
    resume_run(folder)
    assert_same(folder, whole[kind])
    strays = {path.name for path in folder.rglob("*")} - {path.name for path in whole[kind].rglob("*")}
    assert not strays


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_bit_identically(
    whole: dict[str, Path], configs: dict[str, RunConfig], killed: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    killed(start_and_die, folder, configs["interleaved"], "step", 6)
    for point, count in (("step", 5), ("partition", 1), ("step", 6), ("append", 1)):
        killed(resume_and_die, folder, point, count)
    resume_run(folder)
    assert_same(folder, whole["interleaved"])


def test_a_finished_run_stays_as_it_is(copied: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in copied.rglob("*") if path.is_file() and path.name != "lock"}

    before = contents()
    resume_run(copied)
    assert contents() == before


def test_a_cut_off_checkpoint_is_passed_over(
    copied: Path, whole: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    newest = checkpoints(copied / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        resume_run(copied)
    assert f"{newest}: not a readable safetensors file" in caplog.text
    assert_same(copied, whole["interleaved"])


def flip(file: Path, text: bytes, after: int = 0) -> None:
    """Flip one bit of a file, so many bytes after a text in it."""
    block = bytearray(file.read_bytes())
    block[block.index(text) + after] ^= 4
    file.write_bytes(bytes(block))


def test_a_checkpoint_with_a_flipped_bit_is_passed_over(
    copied: Path, whole: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    newest = checkpoints(copied / "checkpoints")[-1]
    tensors, _ = load_tensors(newest)
    weight = tensors["net.B.own.memory.texts"].numpy().tobytes()
    flip(newest, weight, 33)
    with caplog.at_level(logging.WARNING):
        resume_run(copied)
    assert f"{newest}: damaged: the content is not what was written" in caplog.text
    assert_same(copied, whole["interleaved"])


@pytest.mark.parametrize("place", [b"net.b", b"3.25", b'"F32"', b"[2,3]", b"\0\0\x80?"])
def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path, place: bytes) -> None:
    file = tmp_path / "x.safetensors"
    tensors = {"net.b": torch.ones(2, 3), "net.c": torch.zeros(0), "net.d": torch.tensor(True)}
    save_tensors(file, tensors, {"learning_rate": 3.25})
    load_tensors(file)
    flip(file, place, len(place) - 2)
    with pytest.raises(InputError, match=r"x\.safetensors: (damaged|not a readable)"):
        load_tensors(file)


def test_a_new_checkpoint_never_gives_way_to_a_damaged_one_of_a_later_step(tmp_path: Path) -> None:
    def steps() -> list[int]:
        return [int(path.stem[-9:]) for path in checkpoints(tmp_path)]

    for step in (10, 20, 30):
        save_checkpoint(tmp_path, step, {"x": torch.zeros(1)}, {}, keep=2)
    assert steps() == [20, 30]
    (tmp_path / "step-000000030.safetensors").write_bytes(b"damaged")  # the run is resumed from step 20
    save_checkpoint(tmp_path, 25, {"x": torch.zeros(1)}, {}, keep=1)
    assert steps() == [25]


def test_a_file_without_a_checksum_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors", metadata={"in2r": "{}"})
    with pytest.raises(InputError, match=r"x\.safetensors: not written by in2r \(no metadata with a checksum\)"):
        load_tensors(tmp_path / "x.safetensors")


def test_no_readable_checkpoint_is_an_error(copied: Path) -> None:
    for path in checkpoints(copied / "checkpoints"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"not a readable safetensors file.*no other checkpoint can be read"):
        resume_run(copied)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    torch.save({"model": [1, 2]}, tmp_path / "model_best.pth.tar")
    with pytest.raises(InputError, match=r"model_best\.pth\.tar: a pickled checkpoint could run code"):
        load_tensors(tmp_path / "model_best.pth.tar")
    torch.save({"model": [1, 2]}, tmp_path / "renamed.safetensors")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_tensors(tmp_path / "renamed.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="not written by in2r"):
        load_tensors(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="no such file"):
        load_tensors(tmp_path / "absent.safetensors")


def test_a_checkpoint_that_may_not_be_read_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(1)}, {})
    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(InputError, match="Permission denied"):
        load_tensors(tmp_path / "x.safetensors")


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    tensors = {"a": shared, "b": shared.view(2, 3).T, "c": torch.tensor(3), "d": torch.tensor([True, False])}
    save_tensors(tmp_path / "x.safetensors", tensors, {"pi": 0.1 + 0.2})
    found, meta = load_tensors(tmp_path / "x.safetensors")
    assert meta == {"pi": 0.1 + 0.2}
    assert all(torch.equal(found[name], tensors[name]) and found[name].dtype == tensors[name].dtype for name in "abcd")


def change_setting(folder: Path, section: str, name: str, value: Any) -> None:
    file = folder / "config.yaml"
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values[section][name] = value
    file.write_text(yaml.safe_dump(values), encoding="utf-8")


def test_settings_that_no_longer_fit_the_checkpoint(copied: Path) -> None:
    change_setting(copied, "model", "dim", 12)
    with pytest.raises(InputError, match=r"step-.*: other weights than the settings of the run ask for"):
        resume_run(copied, force=True)


# --- full disk


def full_disk(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """From now on there is no room: said by the file system beforehand, or found while writing."""
    if how == "beforehand":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
        return

    def write(tensors: Any, path: str, metadata: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("in2r.tensors.save_file", write)


@pytest.mark.parametrize(("how", "said"), [("beforehand", "0.0 MiB free"), ("meanwhile", "No space left on device")])
def test_a_full_disk_leaves_the_last_good_checkpoint(
    copied: Path, whole: dict[str, Path], how: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewind(copied)
    left = {path: path.read_bytes() for path in (copied / "checkpoints").iterdir()}
    best = (copied / "best.safetensors").read_bytes()
    with monkeypatch.context() as broken:
        full_disk(broken, how)
        with pytest.raises(InputError, match=said):
            resume_run(copied)
    assert {path: path.read_bytes() for path in (copied / "checkpoints").iterdir()} == left
    assert (copied / "best.safetensors").read_bytes() == best
    resume_run(copied)
    assert_same(copied, whole["interleaved"])


def test_a_file_that_cannot_be_written_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch, "meanwhile")
    said = rf"^{tmp_path}/x\.safetensors: could not be written \(No space left on device\); the last good file stays$"
    with pytest.raises(InputError, match=said):
        save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(1)}, {})


def test_a_record_that_cannot_be_written(copied: Path) -> None:
    folder = RunFolder(copied)
    folder.log_file.unlink()
    folder.log_file.mkdir()
    with pytest.raises(InputError, match=r"log\.jsonl: could not be written \(Is a directory\)"):
        folder.append({})


def test_a_lock_that_cannot_be_written(copied: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # every write fails, as on a full disk
    try:
        with pytest.raises(InputError, match=r"lock: could not be written \(File too large\)"):
            resume_run(copied)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


NO_LOCKS = ["ENOLCK", "ENOSYS", "EBADF", "EOPNOTSUPP", "ENOTSUP"]


@pytest.mark.parametrize("name", NO_LOCKS)
def test_a_file_system_without_locks_trains_with_a_warning(
    copied: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    code = getattr(errno, name)

    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))  # as the system's own: without a file's name

    monkeypatch.setattr(fcntl, "flock", flock)
    resume_run(copied)
    said = f"{copied}: the file system does not lock files ({os.strerror(code)}), so a second process would not be"
    assert said in caplog.text


def test_a_lock_that_fails_otherwise_names_its_file(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InputError, match=rf"{copied}/lock: cannot be locked \(Input/output error\)"):
        resume_run(copied)


# --- files of the run that are gone or broken


def test_a_record_that_is_broken_or_too_short_is_named(copied: Path) -> None:
    folder = RunFolder(copied)
    text = folder.log_file.read_text(encoding="utf-8")
    folder.log_file.write_text(text.replace('{"epoch": 2', '{"epoch" 2'), encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl: line 2 is not JSON"):
        folder.records()
    folder.log_file.write_text("3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl: line 1: expected keys and values, got 3"):
        folder.records()
    folder.log_file.write_bytes(b"\xff\n")
    with pytest.raises(InputError, match=r"log\.jsonl: not UTF-8"):
        folder.records()
    folder.log_file.write_text(text.split("\n")[0] + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl: 1 lines, but \d epochs ended before the checkpoint"):
        resume_run(copied)
    assert folder.log_file.read_text(encoding="utf-8").count("\n") == 1


def test_a_trained_run_without_checkpoints_is_not_trained_over(copied: Path) -> None:
    rewind(copied, 9)
    before = (copied / "log.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"checkpoints: no checkpoint, but \d epochs have ended"):
        resume_run(copied)
    assert (copied / "log.jsonl").read_bytes() == before


def test_best_weights_that_are_gone_are_missed_at_once(copied: Path) -> None:
    (copied / "best.safetensors").unlink()
    rewind(copied)
    with pytest.raises(InputError, match=r"best\.safetensors: no such file, but epoch \d was the best"):
        resume_run(copied)


def test_damaged_best_weights_are_missed_before_training(copied: Path) -> None:
    file = copied / "best.safetensors"
    weight = next(value for value in load_tensors(file)[0].values() if len(value.shape) > 1)
    flip(file, weight.numpy().tobytes(), 3)
    rewind(copied)
    before = (copied / "log.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"best\.safetensors: damaged: .*, but epoch \d was the best; put it back"):
        resume_run(copied)
    assert (copied / "log.jsonl").read_bytes() == before


# --- files of another run


def test_a_checkpoint_of_another_run_is_refused(copied: Path, whole: dict[str, Path]) -> None:
    newest, other = (checkpoints(folder / "checkpoints")[-1] for folder in (copied, whole["alternating"]))
    shutil.copy(other, newest)  # of the same shapes
    with pytest.raises(InputError, match=rf"{newest.name}: of another run \(.*\); put this run's own file back"):
        resume_run(copied)
    with pytest.raises(InputError, match="of another run"):
        resume_run(copied, force=True)


# --- the divisions' file


def kept(folder: Path) -> list[Path]:
    """Return the files of divisions that a run has, oldest first."""
    return sorted((folder / "checkpoints").glob("divisions-*.safetensors"))


def test_divisions_are_written_once_an_epoch_and_not_with_every_checkpoint(
    configs: dict[str, RunConfig], tmp_path: Path
) -> None:
    every = replace(configs["interleaved"], checkpoint=CheckpointConfig(every_steps=1, keep=99))
    folder = start_run(tmp_path / "run", every).path
    warmup, *main = (sum(record["steps"].values()) for record in RunFolder(folder).records())
    files = kept(folder)
    assert [file.name for file in files] == [f"divisions-{step:09d}.safetensors" for step in (warmup, warmup + main[0])]
    found = [load_tensors(path) for path in checkpoints(folder / "checkpoints")]
    assert len(found) == warmup + sum(main)
    assert not any(name.startswith("division.") for tensors, _ in found for name in tensors)
    named = [meta["divided_at"] for _, meta in found]
    assert named == [None] * warmup + [warmup] * main[0] + [warmup + main[0]] * main[1]
    for path in checkpoints(folder / "checkpoints")[warmup + 3 :]:
        path.unlink()
    resume_run(folder)
    assert [file.name for file in kept(folder)] == [file.name for file in files]


def test_only_divisions_that_a_checkpoint_names_stay(whole: dict[str, Path]) -> None:
    for kind, folder in whole.items():
        oldest = load_tensors(checkpoints(folder / "checkpoints")[0])[1]["divided_at"]
        assert int(kept(folder)[0].stem[-9:]) == oldest, kind


def test_divisions_of_a_later_step_never_take_the_place_of_those_that_a_checkpoint_names(tmp_path: Path) -> None:
    def save(step: int, divided_at: int) -> list[int]:
        save_checkpoint(tmp_path, step, {"x": torch.zeros(1)}, {"divided_at": divided_at}, keep=2)
        return [int(path.stem[-9:]) for path in sorted(tmp_path.glob("divisions-*"))]

    for divided_at in (10, 16, 20):  # the checkpoint of step 20 is damaged: the run goes on from 16, in longer epochs
        save_divisions(tmp_path, divided_at, {"x": torch.zeros(1)}, {})
    assert 16 in save(21, 16)
    assert save(22, 16) == [16]


def test_without_its_divisions_a_checkpoint_is_not_used(copied: Path) -> None:
    rewind(copied)
    file = kept(copied)[0]
    flip(file, next(iter(load_tensors(file)[0].values())).numpy().tobytes(), 3)
    with pytest.raises(InputError, match=r"divisions-\d+\.safetensors: damaged: .*no other checkpoint can be read"):
        resume_run(copied)


def test_divisions_of_another_run_are_refused(copied: Path, whole: dict[str, Path]) -> None:
    rewind(copied)
    named = kept(copied)[0]
    shutil.copy(kept(whole["alternating"])[-1], named)
    with pytest.raises(InputError, match=rf"{named.name}: of another run \(.*\); put this run's own file back"):
        resume_run(copied)


# --- best weights


def test_best_weights_of_another_run_are_refused(copied: Path, whole: dict[str, Path]) -> None:
    shutil.copy(whole["alternating"] / "best.safetensors", copied)
    for look in (resume_run, evaluate_run, score_run):
        with pytest.raises(InputError, match=r"best\.safetensors: of another run \(.*\); put this run's own file back"):
            look(copied)


def test_the_mark_is_of_all_that_decides_what_is_learnt(
    configs: dict[str, RunConfig], data: Path, noise: Path, tmp_path: Path, whole: dict[str, Path]
) -> None:
    def mark(config: RunConfig, **changes: Any) -> str:
        setup = replace(open_setup(config, torch.device("cpu")), **changes)
        return str(train._describe(setup, loop.Trainer(RunFolder(tmp_path / "run"), setup, Silent()), planned)["mark"])  # type: ignore[arg-type]

    planned = SimpleNamespace(record=dict)
    index, vectors = f"noise.index={noise}", tmp_path / "glove.txt"
    vectors.write_text("red 1 0 0 0\n", encoding="utf-8")
    other_data = make_data(tmp_path / "other")
    change_captions(other_data)
    own = mark(configs["interleaved"])
    assert own == RunFolder(whole["interleaved"]).info()["mark"]
    others = [
        mark(settings(data, "in2r", index, "train.seed=9")),
        mark(settings(other_data, "in2r", index)),
        mark(settings(data, "in2r")),
        mark(settings(data, "in2r", f"noise.index={make_noise(tmp_path / 'noise.npy', 0.6)}")),
        mark(settings(data, "in2r", index, words=True)),
        mark(settings(data, "in2r", index, words=True), vocabulary=Vocabulary.build(["red dog"], min_count=1)),
        mark(settings(data, "in2r", index, f"data.word_vectors={vectors}", words=True)),
    ]
    assert len({own, *others}) == 1 + len(others)
    elsewhere = Path(shutil.copytree(data, tmp_path / "copy"))
    assert mark(settings(elsewhere, "in2r", index, "checkpoint.keep=9", "train.threads=1")) == own


def test_checkpoints_and_best_weights_say_whose_they_are(copied: Path) -> None:
    info = RunFolder(copied).info()
    for file in (*checkpoints(copied / "checkpoints"), copied / "best.safetensors"):
        meta = load_tensors(file)[1]
        assert (meta["run"], meta["data"]) == (info["mark"], info["data"]["fingerprint"]["hash"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", b"\xff\xff", r"config\.yaml: not valid YAML"),
        ("config.yaml", b"train: {epoch: 3}", r"config\.yaml: configuration: unknown key `train\.epoch`"),
        (
            "config.yaml",
            b"",
            r"config\.yaml: no `data\.path` \(and \d+ more\); put back the value at the start, in `settings` of run",
        ),
        ("run.json", b"[]", r"run\.json: expected keys and values, got \[\]"),
        ("run.json", b"{", r"run\.json: not valid JSON"),
    ],
)
def test_a_broken_description_is_named(copied: Path, name: str, content: bytes, message: str) -> None:
    (copied / name).write_bytes(content)
    for look in (resume_run, evaluate_run):
        with pytest.raises(InputError, match=message) as caught:
            look(copied)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["noise", "word_vectors", "plan", "settings"])
def test_a_description_that_lacks_something_is_named(copied: Path, key: str) -> None:
    folder = RunFolder(copied)
    folder.write_info({name: value for name, value in folder.info().items() if name != key})
    for look in (resume_run, evaluate_run):
        with pytest.raises(InputError, match=rf"run\.json: no `{key}`"):
            look(copied)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "data: expected keys and values, got None"),
        ({"data": {"path": "x"}}, "data: no `fingerprint`"),
        ({"data": {"path": "x", "fingerprint": {"hash": "x"}}}, r"data\.fingerprint: no `splits`"),
        ({"settings": None}, "settings: expected keys and values, got None"),
        ({"settings": {"train": 3}}, r"settings\.train: expected keys and values, got 3"),
        ({"plan": None}, "plan: expected keys and values, got None"),
        ({"plan": {"warmup_epochs": "x"}}, r"plan\.warmup_epochs: expected a whole number, got 'x'"),
        ({"vocabulary": {}}, "vocabulary: no `hash`"),
        ({"noise": "much"}, "noise: expected keys and values, got 'much'"),
        ({"forced": [None]}, r"forced\[0\]: expected text, got None"),
    ],
)
def test_a_description_of_another_form_is_one_line(copied: Path, changes: dict[str, Any], message: str) -> None:
    folder = RunFolder(copied)
    folder.write_info(folder.info() | changes)
    for look in (resume_run, evaluate_run, score_run):
        with pytest.raises(InputError, match=rf"run\.json: {message}"):
            look(copied)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"epoch": 2', '{"epoch": "x"', r"line 2\.epoch: expected a whole number, got 'x'"),
        ('"steps": {"A"', '"steps": 3, "else": {"A"', r"line 1\.steps: expected keys and values, got 3"),
        ('{"epoch": 2', '{"epoch": 1', r"line 2 is of epoch 1; put the file back"),
        ('{"epoch": 2', '{"epoch": 3', r"line 2 is of epoch 3; put the file back"),
    ],
)
def test_a_record_of_another_form_or_order_is_one_line(copied: Path, old: str, new: str, message: str) -> None:
    file = copied / "log.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    for look in (resume_run, evaluate_run, score_run):
        with pytest.raises(InputError, match=rf"log\.jsonl: {message}"):
            look(copied)


@pytest.mark.parametrize("lines", [[0, 2], [0, 1, 1, 2]])
def test_a_finished_run_whose_record_lost_or_doubled_a_line_is_refused(copied: Path, lines: list[int]) -> None:
    file = copied / "log.jsonl"
    found = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(found[line] for line in lines), encoding="utf-8")
    for look in (resume_run, evaluate_run, score_run):
        with pytest.raises(InputError, match=r"log\.jsonl: line \d is of epoch \d; put the file back"):
            look(copied)


@pytest.mark.parametrize("lines", [None, 2])
def test_a_record_shorter_than_its_checkpoint_is_not_called_unfinished(copied: Path, lines: int | None) -> None:
    file = copied / "log.jsonl"
    found = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.unlink()
    if lines is not None:
        file.write_text("".join(found[:lines]), encoding="utf-8")
    for look in (resume_run, evaluate_run, score_run):
        with pytest.raises(InputError, match=rf"log\.jsonl: {lines or 0} lines, but 3 epochs ended before the check"):
            look(copied)


def change_checkpoint(folder: Path, **changes: Any) -> Path:
    """Write other metadata into the newest checkpoint; None = without the entry."""
    newest = checkpoints(folder / "checkpoints")[-1]
    tensors, meta = load_tensors(newest)
    save_tensors(newest, tensors, {name: value for name, value in {**meta, **changes}.items() if value is not None})
    return newest


def test_a_checkpoint_of_another_version_is_named(copied: Path) -> None:
    change_checkpoint(copied, divisions=["A", "B"], versions={"in2r": "0.0.1"})
    with pytest.raises(InputError, match=r"step-.*: written by another in2r \(0\.0\.1\), or damaged: "):
        resume_run(copied)


@pytest.mark.parametrize("key", ["divided_at", "means", "cost", "started_as", "computed_on"])
def test_a_checkpoint_that_lacks_something_is_refused(copied: Path, key: str) -> None:
    rewind(copied)
    change_checkpoint(copied, **{key: None})
    with pytest.raises(InputError, match=rf"step-.*: written by another in2r.*{key}"):
        resume_run(copied)


def test_a_run_that_goes_on_elsewhere_says_so(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, meta = load_tensors(checkpoints(copied / "checkpoints")[-1])
    change_checkpoint(copied, computed_on={**meta["computed_on"], "threads": 99})
    resume_run(copied)
    assert "bit-identically" not in caplog.text  # the run is finished
    rewind(copied)
    _, meta = load_tensors(checkpoints(copied / "checkpoints")[-1])
    elsewhere = {**meta["computed_on"], "device": "cuda", "device_name": "a card", "threads": 99}
    file = change_checkpoint(copied, computed_on=elsewhere, versions={**meta["versions"], "torch": "2.0"})
    resume_run(copied)
    threads = torch.get_num_threads()
    assert (
        f"{file}: the next steps are computed with other versions or on another machine: torch (2.0, now "
        f"{torch.__version__}), device (cuda, now cpu), device_name (a card, now None), threads (99, now {threads}); "
        "the run is resumed, but not bit-identically"
    ) in caplog.text


def test_another_number_of_pairs_within_an_epoch(copied: Path) -> None:
    change_checkpoint(copied, divided=True)
    divided, plain = load_tensors(kept(copied)[-1])
    save_tensors(kept(copied)[-1], {name: value[:-1] for name, value in divided.items()}, plain)
    with pytest.raises(InputError, match=r"step-.*: 59 training pairs, now there are 60"):
        resume_run(copied, force=True)


# --- whose folder it is


def test_a_second_process_is_refused_and_a_dead_one_leaves_no_lock(children: Any, copied: Path) -> None:
    ready = children.Event()
    child = children.Process(target=tiny_engine.hold, args=(copied, ready))
    child.start()
    try:
        assert ready.wait(60)
        with pytest.raises(InputError, match=f"{copied}: process {child.pid} is working in this run folder"):
            resume_run(copied)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
    resume_run(copied)


def test_a_folder_with_a_run_is_not_written_over(copied: Path, configs: dict[str, RunConfig], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a run already; `in2r resume"):
        start_run(copied, configs["interleaved"])
    for name in ("vocabulary.json", "log.jsonl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match=rf"holds {name}, which a new run could write over; give a new folder"):
            start_run(tmp_path / name, configs["interleaved"])
        assert (tmp_path / name / name).read_text(encoding="utf-8") == "mine"
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: cannot be a run folder \(File exists\)"):
        start_run(tmp_path / "file", configs["interleaved"])
    with pytest.raises(InputError, match="not a run folder"):
        resume_run(tmp_path / "nothing")


def test_a_path_that_no_checkpoint_could_be_read_from_is_refused(configs: dict[str, RunConfig], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not UTF-8, which safetensors files need; give another folder"):
        start_run(tmp_path / os.fsdecode(b"run-\xff"), configs["interleaved"])
    assert not list(tmp_path.iterdir())


def test_a_start_that_was_killed_early_can_be_made_again(
    configs: dict[str, RunConfig], whole: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("lock", "run.json", "vocabulary.json", "noise_index.npy", "noise_index.npy.json", ".tmp-run.x.json"):
        (tmp_path / name).write_text("half", encoding="utf-8")
    start_run(tmp_path, configs["words"])
    assert_same(tmp_path, whole["words"])
    for name in ("vocabulary.json", "noise_index.npy", "noise_index.npy.json"):
        assert (tmp_path / name).read_bytes() == (whole["words"] / name).read_bytes()
    assert not list(tmp_path.glob(".tmp-*"))
    assert {**RunFolder(tmp_path).info(), "created": 0, "plan": 0} == {
        **RunFolder(whole["words"]).info(), "created": 0, "plan": 0,
    }  # fmt: skip


def test_the_threads_of_a_run_are_its_own(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, seen = torch.get_num_threads(), []

    def watched(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noted(*args: Any, **more: Any) -> Any:
            seen.append(torch.get_num_threads())
            return function(*args, **more)

        monkeypatch.setattr(module, name, noted)

    def work(name: str, threads: str) -> None:
        config = settings(data, "sce", f"train.threads={threads}", "train.epochs=1")
        folder = start_run(tmp_path / name, config).path
        assert RunFolder(folder).info()["threads"] == int(threads.replace("null", str(usual)))
        rewind(folder)
        resume_run(folder)
        evaluate_run(folder)
        score_run(folder)

    watched(loop, "evaluate_split")
    watched(evaluate, "evaluate_split")
    watched(judged, "observe_pairs")
    own = usual + 1
    work("own", str(own))
    assert seen == [own] * 7  # trained, resumed, tested (and its pairs judged by both networks), scored by both
    assert torch.get_num_threads() == usual
    seen.clear()
    work("usual", "null")
    assert seen == [usual] * 7


# --- what the run was started with


def change_captions(data: Path) -> None:
    features = data / "train_vecs.npy"
    block = bytearray(features.read_bytes())
    block[-1] ^= 1
    features.write_bytes(bytes(block))


@pytest.fixture
def movable(tmp_path: Path, noise: Path) -> tuple[Path, Path, Path]:
    """Return a run that is half done, its own copy of the data, and its noise index."""
    data = make_data(tmp_path / "data")
    index = Path(shutil.copy(noise, tmp_path / "noise.npy"))
    folder = start_run(tmp_path / "run", settings(data, "in2r", f"noise.index={index}", "train.epochs=2")).path
    rewind(folder)
    return folder, data, index


def test_other_features_are_refused_unless_forced(
    movable: tuple[Path, Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder, data, _ = movable
    change_captions(data)
    with pytest.raises(
        InputError, match=f"changed since the start of the run: the features or captions of train in {data}.*--force"
    ):
        resume_run(folder)
    with caplog.at_level(logging.WARNING):
        resume_run(folder, force=True)
    assert "used because of --force" in caplog.text
    assert len(RunFolder(folder).records()) == 2


def test_the_run_keeps_its_noise_index(movable: tuple[Path, Path, Path]) -> None:
    folder, _, index = movable
    make_noise(index, 0.6)
    resume_run(folder)
    index.unlink()
    setup = reopen(RunFolder(folder))
    assert setup.noise_record() == RunFolder(folder).info()["noise"]
    assert setup.noise_record()["file"] == "noise.npy"  # the name of what was given


def test_a_foreign_index_is_kept_with_all_that_was_found(data: Path, noise: Path, tmp_path: Path) -> None:
    index = Path(shutil.copy(noise, tmp_path / "foreign.npy"))
    folder = start_run(tmp_path / "run", settings(data, "sce", f"noise.index={index}", "train.epochs=1"))
    index.unlink()
    assert folder.info()["noise"]["level"] == "caption"
    assert reopen(folder).noise_record() == folder.info()["noise"]


def test_another_noise_index_is_refused(movable: tuple[Path, Path, Path]) -> None:
    folder, _, _ = movable
    copy = make_noise(folder / "noise_index.npy", 0.6)
    with pytest.raises(InputError, match=f"changed since the start of the run: the noise index {copy}"):
        resume_run(folder)


def test_what_was_forced_in_training_is_never_forgotten(movable: tuple[Path, Path, Path]) -> None:
    folder, data, _ = movable
    kept = folder / "noise_index.npy"
    right = kept.read_bytes(), kept.with_name("noise_index.npy.json").read_bytes()
    make_noise(kept, 0.6)
    resume_run(folder, force=True)
    kept.write_bytes(right[0])
    kept.with_name("noise_index.npy.json").write_bytes(right[1])
    assert RunFolder(folder).info()["forced"] == [f"the noise index {kept}"]
    assert evaluate_run(folder, "dev")["protocol"]["forced"] == {"training": [f"the noise index {kept}"], "now": []}
    change_captions(data)
    resume_run(folder, force=True)  # finished: nothing is trained
    assert RunFolder(folder).info()["forced"] == [f"the noise index {kept}"]


def test_the_runs_copy_of_its_noise_index_is_missed(movable: tuple[Path, Path, Path]) -> None:
    folder, _, _ = movable
    for path in folder.glob("noise_index.npy*"):
        path.unlink()
    with pytest.raises(InputError, match=r"noise_index\.npy: no such file; put the run's copy of noise\.npy back"):
        resume_run(folder)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [("train", "seed", 9), ("train", "learning_rate", 0.5), ("partition", "threshold", 0.9)],
)
def test_settings_that_decide_the_run_are_refused_when_changed(
    copied: Path, section: str, name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change_setting(copied, section, name, value)
    with pytest.raises(
        InputError, match=rf"start of the run: setting {section}\.{name} \(.*, now {value}\); --force uses them"
    ):
        resume_run(copied)
    with caplog.at_level(logging.WARNING):
        resume_run(copied, force=True)
    assert f"setting {section}.{name}" in caplog.text


def test_a_config_that_was_cut_off_is_refused(copied: Path) -> None:
    file = copied / "config.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: text.index("train:")], encoding="utf-8")
    for look in (resume_run, evaluate_run):
        with pytest.raises(InputError, match=r"config\.yaml: no `train\.seed` \(and \d+ more\); put back"):
            look(copied)


def test_settings_of_place_and_upkeep_may_change(copied: Path, whole: dict[str, Path]) -> None:
    changes = (
        ("checkpoint", "keep", 1), ("train", "threads", 1), ("train", "device", "cpu:0"),
        ("data", "residency", "device"),
    )  # fmt: skip
    for section, name, value in changes:
        change_setting(copied, section, name, value)
    rewind(copied)
    assert checkpoints(copied / "checkpoints")
    resume_run(copied)
    assert_same(copied, whole["interleaved"])
    assert len(checkpoints(copied / "checkpoints")) == 1
    assert "forced" not in RunFolder(copied).info()


def test_a_vocabulary_that_is_gone_is_not_built_anew(whole: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole["words"], tmp_path / "copy"))
    (folder / "vocabulary.json").unlink()
    with pytest.raises(InputError, match=r"vocabulary\.json: no such file"):
        resume_run(folder)


def test_another_vocabulary_is_refused(whole: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole["words"], tmp_path / "copy"))
    Vocabulary.build(["zebra stripe"], min_count=1).save(folder / "vocabulary.json")
    with pytest.raises(InputError, match=r"vocabulary\.json: vocabulary differs \(hash .*words"):
        resume_run(folder)


@pytest.fixture
def with_word_vectors(data: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a finished run of one epoch that started with word vectors, and their file."""
    file = tmp_path / "glove.txt"
    file.write_text("red 1 0 0 0\ndog 0 1 0 0\n", encoding="utf-8")
    overrides = (f"data.word_vectors={file}", "train.epochs=1", "train.initial_weights=independent")
    return start_run(tmp_path / "run", settings(data, "sce", *overrides, words=True)).path, file


def test_other_word_vectors_before_the_first_checkpoint_are_refused(with_word_vectors: tuple[Path, Path]) -> None:
    folder, file = with_word_vectors
    whole = folder.with_name("whole")
    shutil.copytree(folder, whole)
    rewind(folder, 9)  # killed before the first checkpoint
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("red 1", "red 2"), encoding="utf-8")
    with pytest.raises(
        InputError, match=f"changed since the start of the run: the word vectors {file}; --force uses them"
    ):
        resume_run(folder)
    file.write_text(text, encoding="utf-8")
    resume_run(folder)
    assert_same(folder, whole)
    rewind(folder, 9)
    file.write_text(text.replace("red 1", "red 2"), encoding="utf-8")
    resume_run(folder, force=True)
    assert RunFolder(folder).info()["forced"] == [f"the word vectors {file}"]


def test_once_there_is_a_checkpoint_the_word_vectors_are_not_needed(with_word_vectors: tuple[Path, Path]) -> None:
    folder, file = with_word_vectors
    shutil.copytree(folder, folder.with_name("whole"))
    file.unlink()
    rewind(folder)
    resume_run(folder)
    assert_same(folder, folder.with_name("whole"))


def test_word_vectors_are_read_once_and_the_other_rows_drawn_for_each_network(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("red 1 0 0 0\n", encoding="utf-8")
    reads: list[Any] = []
    monkeypatch.setattr(loop, "load_word_vectors", lambda *args: reads.append(args) or load_word_vectors(*args))
    overrides = (f"data.word_vectors={file}", "train.initial_weights=independent")
    setup = open_setup(settings(data, "sce", *overrides, words=True), torch.device("cpu"))
    trainer = loop.Trainer(RunFolder(tmp_path / "run"), setup, Silent())
    assert len(reads) == 1
    a, b = (trainer.state.nets[name].backbone.text.embed.weight for name in "AB")
    assert setup.vocabulary is not None
    red = setup.vocabulary.words.index("red")
    assert a[red].tolist() == b[red].tolist() == [1, 0, 0, 0]
    assert [row for row in range(len(a)) if torch.equal(a[row], b[row])] == [red]

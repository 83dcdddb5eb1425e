"""Features in pieces by several workers: one of them killed, others of other settings, an end that is cut off."""

import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import forked
from in2r.cli.main import main
from in2r.data.check import check_data
from in2r.data.features import open_file_or_pieces
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.extract import together
from in2r.extract.shared import Held, Shared
from photo_case import Case, Watched


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(together, "POLL", 0.02)
    return Case(tmp_path)


def wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 100
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def same_data(one: Path, pieces: Path) -> None:
    """Expect the same small files, and the same arrays, of which one is in pieces."""
    small = sorted(path.name for path in one.iterdir() if path.suffix != ".npy")
    assert small == sorted(path.name for path in pieces.iterdir() if path.is_file())
    for name in small:
        assert (one / name).read_bytes() == (pieces / name).read_bytes(), name
    for side in ("images", "captions"):
        whole = np.load(one / f"{side}.npy")
        parts = [np.load(path) for path in sorted((pieces / side).iterdir())]
        assert len(parts) > 1
        assert np.array_equal(np.concatenate(parts), whole)
        assert parts[0].dtype == whole.dtype
    read = [open_data(folder, caption_vectors=True).fingerprint(full=True) for folder in (one, pieces)]
    assert read[0] == read[1]
    assert check_data(pieces).usable


def test_three_processes_of_which_one_is_killed_make_what_one_alone_makes(case: Case, children: Any) -> None:
    """The second piece has no readable image; the one that is killed was in the middle of a piece."""
    for name in case.names[7:14]:
        (case.photos / name).write_bytes(b"no image")
    (case.photos / case.names[2]).unlink()
    case.make("whole")
    case.hang.touch()
    data, unfinished = case.folder / "data", case.folder / "data" / "unfinished"
    command = ["features", str(case.photos), str(case.table), "--out", str(data), "--encoder", case.encoder]
    command += ["--batch", "4", "--workers", "1", "--device", "cpu", "--pieces", "7"]
    workers = {}
    for number in range(3):
        log = case.folder / f"{number}.log"
        child = children.Process(target=forked.run_command, args=(command, log), daemon=True)
        child.start()
        workers[child.pid] = child, log
    wait(lambda: any(case.folder.glob("hang.*")))
    [hanging] = case.folder.glob("hang.*")
    wait(lambda: len([*unfinished.glob("images-*.json"), *unfinished.glob("captions-*.json")]) == 5 + 9 - 1)
    victim, _ = workers.pop(int(hanging.suffix[1:]))
    others = [log for _, log in workers.values()]
    wait(lambda: all("nothing is left to claim; waits for images-0000" in log.read_text() for log in others))
    assert all(f"(process {victim.pid} on " in log.read_text() for log in others)
    assert not (data / "pairs.csv").exists()
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(60)
    for child, log in workers.values():
        child.join(60)
        assert child.exitcode == 0, log.read_text()
    assert not unfinished.exists()
    same_data(case.folder / "whole", data)
    assert [path.name for path in sorted((data / "images").iterdir())] == [f"images-{n:05}.npy" for n in range(4)]
    texts = [log.read_text() for log in others]
    assert sum("the features are there" in text for text in texts) == 1  # the other one finished the folder
    made = [(case.folder / f"{number}.log").read_text().count("; this worker made ") for number in range(3)]
    assert sum(made) == 5 + 9
    assert all(f"{data / 'images'}: 22 images × 10 × 3 float16" in text for text in texts)


def test_what_was_interrupted_is_continued_and_a_finished_folder_is_left_alone(case: Case) -> None:
    case.make("whole")
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make(pieces=7)
    unfinished = case.folder / "data" / "unfinished"
    assert sorted(path.name for path in unfinished.iterdir()) == [
        "claims", *(f"images-0000{n}.{kind}" for n in range(3) for kind in ("json", "npy")), "pieces.json",
    ]  # fmt: skip
    assert list((unfinished / "claims").iterdir()) == []
    case.stop.unlink()
    watched = Watched()
    made = case.make(display=watched, pieces=7)
    assert (made.image_shape, made.caption_shape, made.again) == ((30, 10, 3), (60, 2), False)
    assert watched.told[0] == ("all workers", 21, 90)
    assert watched.told[-1] == ("all workers", 90, 90)
    assert [told for told in watched.told if told[0] == "this worker"][-1] == ("this worker", 69, 90)
    same_data(case.folder / "whole", case.folder / "data")
    for pieces in (7, 8, None):  # how it is cut decides nothing
        again = case.make(pieces=pieces)
        assert (again.image_shape, again.caption_shape, again.again) == ((30, 10, 3), (60, 2), True)
    with pytest.raises(InputError, match=r"was made with other settings: regions \(was 3, now 0\)"):
        case.make(pieces=7, regions=0)


def test_an_end_that_was_cut_off_is_made_up_for(case: Case) -> None:
    case.make("whole")
    table = case.folder / "data" / "pairs.csv"

    class Spoiling(Watched):
        def update(self, what: str, done: int, total: int) -> None:
            if (what, done) == ("all workers", total):
                table.mkdir()  # the last file of all cannot be written

    with pytest.raises(OSError, match=r"pairs\.csv"):
        case.make(display=Spoiling(), pieces=11)
    assert len(list((case.folder / "data" / "images").iterdir())) == 3
    table.rmdir()
    case.make(pieces=11)
    same_data(case.folder / "whole", case.folder / "data")


def test_another_command_is_refused_by_name(case: Case) -> None:
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make(pieces=7)
    with pytest.raises(KeyboardInterrupt):
        case.make("single")
    case.stop.unlink()
    with pytest.raises(InputError, match=r"was begun with other settings: --pieces \(was 7, now 8\); give the same"):
        case.make(pieces=8)
    with pytest.raises(InputError, match=r"was begun with other settings: regions \(was 3, now 0\)"):
        case.make(pieces=7, regions=0)
    with pytest.raises(InputError, match=r"data: was begun with --pieces; give the same command again"):
        case.make()
    with pytest.raises(InputError, match=r"single: was begun without --pieces; give the same command again"):
        case.make("single", pieces=7)
    (case.folder / "mine").mkdir()
    (case.folder / "mine" / "letter.txt").touch()
    with pytest.raises(InputError, match=r"mine: holds letter\.txt; give a new folder"):
        case.make("mine", pieces=7)


def test_the_claim_of_another_machine_is_waited_for_until_it_is_removed(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.make("whole")
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make(pieces=7)
    case.stop.unlink()
    claim = case.folder / "data" / "unfinished" / "claims" / "images-00004.json"
    claim.write_text(json.dumps({"host": "node7", "process": 12}))
    with caplog.at_level(logging.INFO):
        worker = threading.Thread(target=case.make, kwargs={"pieces": 7})
        worker.start()
        wait(lambda: "waits for" in caplog.text)
    assert f"waits for images-00004 (process 12 on node7; if it has ended, remove {claim})" in caplog.text
    claim.unlink()
    worker.join(60)
    same_data(case.folder / "whole", case.folder / "data")


def test_no_readable_image_at_all_is_said_by_one_worker(case: Case) -> None:
    for name in case.names:
        (case.photos / name).write_text("<html>")
    with pytest.raises(InputError, match=r"none of 30 images can be read: 'p00.png' \(begins with b'<html>'\)"):
        case.make(pieces=7)
    assert not (case.folder / "data" / "unfinished").exists()


def test_a_piece_may_end_with_a_batch_of_one_odd_image(case: Case) -> None:
    Image.new("RGB", (7, 7)).save(case.photos / case.names[4])
    assert case.make(pieces=5).verdicts == {"ok": 29, "refused": 1}
    for name in case.names:
        Image.new("RGB", (7, 7)).save(case.photos / name)
    with pytest.raises(
        InputError, match=r"p00\.png: the encoder's preprocessing fails on every image: ValueError: seven"
    ):
        case.make("other", pieces=5)


def test_pieces_of_several_shapes_are_refused(case: Case) -> None:
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make(pieces=7)
    case.stop.unlink()
    record = case.folder / "data" / "unfinished" / "images-00001.json"
    record.write_text(record.read_text().replace('"shape": [10, 3]', '"shape": [10, 4]'))
    with pytest.raises(InputError, match=r"several shapes: images-00004 of \(10, 3\) and images-00001 of \(10, 4\)"):
        case.make(pieces=7)


def test_nothing_is_claimed_that_is_done_or_over(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "data", {"encoder": "x"}, 2, 5, 0)
    shared.begin()
    assert [(piece.start, piece.stop) for piece in shared.pieces] == [(0, 2), (2, 4), (4, 5)]
    first, second, third = shared.pieces
    held = shared.claim(first)
    assert held is not None
    assert shared.claim(first) is None
    shared.keep(first, Held(2, (3,)))
    held.release()
    assert shared.claim(first) is None
    assert shared.left() == [second, third]
    assert list((shared.path / "claims").iterdir()) == []
    (shared.path / "pieces.json").unlink()
    assert shared.claim(second) is None
    shutil.rmtree(shared.path)
    assert shared.claim(second) is None
    assert not shared.path.exists()


def test_of_many_that_begin_at_once_those_of_other_settings_are_refused(tmp_path: Path) -> None:
    start, found = threading.Barrier(8), list[tuple[int, str]]()

    def begin(number: int) -> None:
        shared = Shared(tmp_path / "data", {"number": number % 2}, 2, 5, 0)
        start.wait()
        try:
            shared.begin()
            found.append((number % 2, "joined"))
        except InputError as error:
            found.append((number % 2, str(error)))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [began] = {number for number, said in found if said == "joined"}
    assert sorted(number for number, _ in found) == [0] * 4 + [1] * 4
    refused = f"{tmp_path / 'data'}: was begun with other settings: number (was {began}, now {1 - began}); give"
    assert all(said.startswith(refused) for number, said in found if number != began)


def test_a_folder_without_text_side_has_pieces_of_images_alone(case: Case) -> None:
    code = (case.folder / "own.py").read_text().replace("def encode_texts", "def unused")
    (case.folder / "own.py").write_text(code)
    made = case.make(pieces=1, regions=0)
    assert (made.image_shape, made.caption_shape) == ((30, 3), None)
    assert not (case.folder / "data" / "captions").exists()
    assert open_file_or_pieces(case.folder / "data" / "images").shape == (30, 1, 3)


def test_pieces_is_a_number_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["features", "x", "--out", "y", "--encoder", "z", "--pieces", "0"])
    assert "--pieces: '0': expected a number from 1" in capsys.readouterr().err

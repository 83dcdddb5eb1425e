"""Leases: one owner at a time, whoever else looks, however the last one ended."""

import multiprocessing
import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from in2r.bench.leases import Heartbeat, Lease, claim, holder

LONG = 60.0


def age(lease: Lease, seconds: float) -> None:
    """Make a lease look as if it had not been touched for a while."""
    then = time.time() - seconds
    os.utime(lease.file, (then, then))


class Loss:
    """Hears a heartbeat say that a cell is lost."""

    def __init__(self) -> None:
        self.times = 0
        self._said = Event()

    def __call__(self) -> None:
        self.times += 1
        self._said.set()

    def comes(self, beat: Heartbeat) -> bool:
        """Wait for the word and for the heartbeat's end; tell whether it was said, once."""
        said = self._said.wait(10)
        beat.stop()
        return said and self.times == 1


def test_a_cell_has_one_owner(tmp_path: Path) -> None:
    first = claim(tmp_path, "cell", LONG)
    assert first is not None
    said = holder(tmp_path, "cell", LONG)
    assert said is not None
    assert said["pid"] == os.getpid()
    assert claim(tmp_path, "cell", LONG) is None
    assert claim(tmp_path, "other", LONG) is not None
    assert claim(tmp_path, "cell.0", LONG) is not None  # names with dots are names
    first.release()
    assert holder(tmp_path, "cell", LONG) is None
    assert claim(tmp_path, "cell", LONG) is not None


def test_a_lease_that_nobody_touches_runs_out_and_one_takes_it(tmp_path: Path) -> None:
    lost = claim(tmp_path, "cell", LONG)
    assert lost is not None
    age(lost, LONG - 10)
    assert claim(tmp_path, "cell", LONG) is None
    age(lost, LONG + 10)
    taken = claim(tmp_path, "cell", LONG)
    assert taken is not None
    assert taken.number == lost.number + 1
    assert not lost.renew()
    assert taken.renew()
    lost.release()  # the owner that was given up for dead comes back
    assert holder(tmp_path, "cell", LONG) is not None
    assert not lost.file.exists()


def test_the_owners_span_counts_and_a_lease_from_the_future_is_nobodys(tmp_path: Path) -> None:
    long = claim(tmp_path, "cell", 600)
    assert long is not None
    age(long, 300)
    assert claim(tmp_path, "cell", 4) is None
    age(long, -3600)
    assert claim(tmp_path, "cell", 4) is not None


@pytest.mark.parametrize("content", ["null", "{", "[1]", "\x00"])
def test_a_damaged_lease_is_a_lease_until_it_runs_out(tmp_path: Path, content: str) -> None:
    lease = claim(tmp_path, "cell", LONG)
    assert lease is not None
    lease.file.write_text(content)
    assert claim(tmp_path, "cell", LONG) is None
    age(lease, LONG + 10)
    assert claim(tmp_path, "cell", LONG) is not None


def test_a_heartbeat_outlives_a_file_system_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = claim(tmp_path, "cell", 1.2)
    assert lease is not None
    lost = Loss()
    answers = iter([OSError("stale"), True, *[OSError("gone")] * 99])

    def renew(self: Lease) -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return bool(answer)

    monkeypatch.setattr(Lease, "renew", renew)
    beat = Heartbeat(lease, lost, lambda: True)
    time.sleep(0.7)  # two beats
    assert not lost.times
    assert lost.comes(beat)
    assert len(list(answers)) < 98  # it was asked more than once more


def test_one_who_looked_too_long_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its claim another has taken, released and a third has taken the cell."""
    first = claim(tmp_path, "cell", LONG)
    assert first is not None
    first.release()
    others: list[Lease] = []
    create = os.open

    def late(path: Any, *how: Any) -> int:
        if Path(path).name == "cell.2" and not others:
            monkeypatch.setattr(os, "open", create)
            second = claim(tmp_path, "cell", LONG)
            assert second is not None
            second.release()
            third = claim(tmp_path, "cell", LONG)
            assert third is not None
            others.append(third)
        return create(path, *how)

    monkeypatch.setattr(os, "open", late)
    assert claim(tmp_path, "cell", LONG) is None
    assert [file.name for file in tmp_path.iterdir()] == [others[0].file.name] == ["cell.3"]


def test_a_claim_that_is_being_written_is_a_claim(tmp_path: Path) -> None:
    (tmp_path / "cell.1").touch()
    assert holder(tmp_path, "cell", LONG) == {}
    assert claim(tmp_path, "cell", LONG) is None


def _race(folder: Path, rounds: int, begin: Any, won: Any) -> None:
    begin.wait()
    mine = [number for number in range(rounds) if claim(folder, f"cell{number}", LONG) is not None]
    won.put(mine)


def test_of_many_processes_one_gets_each_cell(tmp_path: Path) -> None:
    rounds, context = 40, multiprocessing.get_context("fork")
    for number in range(0, rounds, 2):  # half of them were held by someone who died
        dead = claim(tmp_path, f"cell{number}", LONG)
        assert dead is not None
        age(dead, LONG + 10)
    begin, won = context.Event(), context.Queue()
    racers = [context.Process(target=_race, args=(tmp_path, rounds, begin, won)) for _ in range(4)]
    for racer in racers:
        racer.start()
    begin.set()
    taken = sorted(number for _ in racers for number in won.get(timeout=60))
    for racer in racers:
        racer.join(60)
    assert taken == list(range(rounds))


def test_a_heartbeat_keeps_a_lease_and_hears_of_its_loss(tmp_path: Path) -> None:
    lease = claim(tmp_path, "cell", 0.4)
    assert lease is not None
    lost = Loss()
    beat = Heartbeat(lease, lost, lambda: True)
    time.sleep(1)
    assert holder(tmp_path, "cell", 0.4) is not None
    beat.stop()
    assert not lost.times
    age(lease, 10)
    other = claim(tmp_path, "cell", 0.4)
    assert other is not None
    assert lost.comes(Heartbeat(lease, lost, lambda: True))
    unwanted = Loss()
    assert unwanted.comes(Heartbeat(other, unwanted, lambda: False))

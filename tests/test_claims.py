"""Claims: one process holds one; a process that is gone holds none; another machine's claim stands."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from in2r.claims import Claim, Holder, claim, holder

ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from in2r.claims import claim
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    claim(Path(sys.argv[1]))
except OSError as error:
    print(error.filename, flush=True)
"""
HOLD = """
import sys
from pathlib import Path
from in2r.claims import claim
held = claim(Path(sys.argv[1]))
print(held is not None, flush=True)
sys.stdin.read()
"""


def elsewhere(path: Path) -> None:
    """Write the claim of another machine."""
    path.write_text(json.dumps({"host": "node7", "process": 12}))


def test_a_cell_has_one_holder_until_it_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "cell.json"
    assert holder(path) is None
    with pytest.raises(FileNotFoundError):
        claim(path)
    path.parent.mkdir()
    first = claim(path)
    assert first is not None
    found = holder(path)
    assert found is not None
    assert (found.host, found.is_alive) == (socket.gethostname(), True)
    assert claim(path) is None
    other = claim(path.with_name("other.json"))
    assert other is not None
    other.release()
    first.release()
    assert holder(path) is None
    again = claim(path)
    assert again is not None
    again.release()
    assert list(path.parent.iterdir()) == []


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert holder(path) == Holder(socket.gethostname(), process.pid, True)
        assert claim(path) is None
        process.kill()
    assert path.exists()
    assert holder(path) is None
    taken = claim(path)
    assert taken is not None
    taken.release()


def test_a_claim_lives_in_a_child_that_inherited_it(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    held = claim(path)
    assert held is not None
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(held.descriptor,)):
        held._file.close()  # as the system does when this process is killed
        assert claim(path) is None
    taken = claim(path)
    assert taken is not None
    taken.release()


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (elsewhere, "process 12 on node7"),
        (Path.touch, "an unknown process"),
        (lambda path: path.write_text('["damaged"]'), "an unknown process"),
    ],
)
def test_a_claim_of_another_machine_stands_until_it_is_removed(
    write: Callable[[Path], object], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "cell.json"
    write(path)
    assert claim(path) is None
    found = holder(path)
    assert found is not None
    assert (str(found), found.is_alive) == (name, False)
    path.unlink()
    taken = claim(path)
    assert taken is not None
    taken.release()


def test_of_many_that_claim_at_once_one_gets_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    for left_behind in (False, True):
        if left_behind:
            path.write_text(json.dumps({"host": socket.gethostname(), "process": 1}))
        taken: list[Claim | None] = []
        start = threading.Barrier(8)

        def take(start: threading.Barrier = start, taken: list[Claim | None] = taken) -> None:
            start.wait()
            taken.append(claim(path))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (held,) = [found for found in taken if found is not None]
        held.release()


def test_on_a_full_disk_nothing_is_claimed(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    done = subprocess.run([sys.executable, "-c", ON_A_FULL_DISK, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(path)
    assert not path.exists()
    held = claim(path)
    assert held is not None
    held.release()

"""Folders copied to and from a store: what is copied, what is kept, what is refused, what is never shown."""

import errno
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from in2r.claims import claim
from in2r.cli.main import main
from in2r.data.copy import CLAIM, Copied, copy_folder, digest
from in2r.data.sources import open_data
from in2r.data.store import Folder, Store, without_login
from in2r.errors import InputError
from tiny_run import SETTINGS_OF_ONE_EPOCH, make_data

fsspec = pytest.importorskip("fsspec", reason="fsspec (in2r[store]) is not installed")

ROWS = 40_000
"""rows of an array of 1.28 MB, of which blocks are compared"""


@pytest.fixture
def url() -> Iterator[str]:
    """A folder of a store in memory, emptied afterwards."""
    yield "memory://bucket/data"
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pseudo_dirs[:] = [""]


def make_folder(path: Path) -> Path:
    (path / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for piece in range(3):
        np.save(path / "images" / f"images-{piece:05}.npy", rng.standard_normal((ROWS, 8)).astype(np.float32))
    (path / "pairs.tsv").write_text("image\tcaption\n0\ta dog\n")
    (path / ".tmp-pairs.x.tsv").write_text("half")
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def wanted(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(path).items() if ".tmp-" not in name}


def test_there_and_back_through_the_command_line(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, back = make_data(tmp_path / "data"), tmp_path / "deep" / "back"
    assert main(["data", "copy", str(data), url]) == 0
    assert capsys.readouterr().out.startswith(f"{url}: 9 files copied (")
    assert main(["data", "copy", url, str(back)]) == 0
    said = capsys.readouterr().out
    assert ", 0 were there\n" in said
    assert said.endswith(f"check it: in2r data check {back}\n")
    assert contents(back) == contents(data)
    assert open_data(back).fingerprint(full=True) == open_data(data).fingerprint(full=True)
    assert main(["data", "check", str(back)]) == 0
    assert main(["train", "sce", f"data.path={back}", *SETTINGS_OF_ONE_EPOCH, "--out", str(tmp_path / "run")]) == 0
    run = tmp_path / "run"
    assert main(["data", "copy", str(run), f"{url}-run"]) == 0
    assert main(["data", "copy", f"{url}-run", str(tmp_path / "run2")]) == 0
    assert contents(tmp_path / "run2") == contents(run)
    capsys.readouterr()


def test_what_is_there_is_kept_and_what_differs_is_copied(tmp_path: Path, url: str) -> None:
    data, back = make_folder(tmp_path / "data"), tmp_path / "back"
    size = sum(map(len, wanted(data).values()))
    assert copy_folder(str(data), url) == Copied(4, size, 0)
    assert copy_folder(str(data), url) == Copied(0, 0, 4)
    assert copy_folder(url, str(back), workers=1) == Copied(4, size, 0)
    assert copy_folder(url, str(back)) == Copied(0, 0, 4)
    other = np.ones((ROWS, 8), np.float32)
    np.save(back / "images" / "images-00001.npy", other)  # of the same size
    (back / "pairs.tsv").write_text("image\tcaption\n0\ta cat\n")  # likewise
    (back / "images" / "images-00002.npy").write_bytes(b"cut")
    assert copy_folder(url, str(back)).kept == 1
    assert contents(back) == wanted(data)
    np.save(data / "images" / "images-00000.npy", other)
    assert copy_folder(str(data), url).files == 1
    assert (
        fsspec.filesystem("memory").cat(f"{url}/images/images-00000.npy")
        == (data / "images" / "images-00000.npy").read_bytes()
    )


def test_two_folders_of_one_machine_and_what_a_killed_copy_left(tmp_path: Path) -> None:
    data, back = make_folder(tmp_path / "data"), tmp_path / "back"
    (data / "linked.npy").symlink_to(data / "images" / "images-00000.npy")
    (back / "images").mkdir(parents=True)
    (back / "images" / ".tmp-images-00000.x.npy").write_text("half")
    assert copy_folder(f"file://{data}", str(back)).files == 5
    assert contents(back) == wanted(data)
    assert (back / "pairs.tsv").stat().st_mode == (data / "pairs.tsv").stat().st_mode


def test_a_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data")
    for target in (data, data / "copy"):
        with pytest.raises(InputError, match=r"data.*: lies in .*data, which is to be copied"):
            copy_folder(str(data), str(target))
    assert not (data / "copy").exists()


def test_files_that_only_the_target_has_stay_and_are_named(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, back = make_folder(tmp_path / "data"), tmp_path / "back"
    copy_folder(str(data), url)
    (back / "images").mkdir(parents=True)
    (back / "images" / "images-00003.npy").write_text("old")
    copy_folder(url, str(back))
    said = f"{back}: holds 1 files that {url} does not hold, such as images/images-00003.npy; they stay"
    assert [record.getMessage() for record in caplog.records] == [said]


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "a/./b"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, url: str, name: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"{url}/ok.txt", b"x")
    store = fsspec.filesystem("memory").store
    store[f"/bucket/data/{name}"] = store["/bucket/data/ok.txt"]
    with pytest.raises(InputError, match="leads out of a folder"):
        copy_folder(url, str(tmp_path / "back"))
    assert list(tmp_path.iterdir()) == []


class Faulty:
    """A source whose one file misbehaves while it is fetched."""

    def __init__(self, folder: Folder, fault: Any) -> None:
        self.folder, self.fault = folder, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self.folder, name)

    def fetch(self, file: str, path: Path, moved: Any) -> None:
        self.folder.fetch(file, path, moved)
        self.fault(self.folder.path / file, path)


def changed(source: Path, written: Path) -> None:
    source.write_text("image\tcaption\n0\ta cat\n")


def short(source: Path, written: Path) -> None:
    written.write_bytes(written.read_bytes()[:-1])


def flipped(source: Path, written: Path) -> None:
    written.write_bytes(b"I" + written.read_bytes()[1:])


def full(source: Path, written: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (changed, "data/pairs.tsv: changed while it was copied"),
        (short, "data/pairs.tsv: 22 bytes, but 21 arrived"),
        (flipped, "back/pairs.tsv: what was written differs from"),
        (full, "No space left on device"),
    ],
)
def test_a_file_that_goes_wrong_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, said: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "pairs.tsv").write_text("image\tcaption\n0\ta dog\n")
    made = {"data": Faulty(Folder(tmp_path / "data"), fault), "back": Folder(tmp_path / "back")}
    monkeypatch.setattr("in2r.data.copy.place", lambda text: made[text])
    with pytest.raises((InputError, OSError), match=said) as caught:
        copy_folder("data", "back")
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(tmp_path / "back" / "pairs.tsv")
    assert list((tmp_path / "back").iterdir()) == []


def test_an_upload_of_a_file_that_changes_is_taken_back(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_folder(tmp_path / "data")
    send = Store.send

    def changing(self: Store, path: Path, file: str, moved: Any) -> None:
        send(self, path, file, moved)
        if path.name == "pairs.tsv":
            path.write_text("image\tcaption\n0\ta cat\n")

    monkeypatch.setattr(Store, "send", changing)
    with pytest.raises(InputError, match=r"data/pairs\.tsv: changed while it was copied; copy again"):
        copy_folder(str(data), url)
    assert not fsspec.filesystem("memory").exists(f"{url}/pairs.tsv")


def test_what_cannot_be_copied_is_said(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        (str(tmp_path / "none"), url): f"{tmp_path}/none: no such folder, or no file in it",
        (url, str(tmp_path / "back")): f"{url}: no such folder, or no file in it",
        (url, f"{url}2"): f"{url} to {url}2: one of both must be a folder of this machine",
        ("nosuch://u:secret@b/x", "back"): "nosuch://***@b/x: Protocol not known: nosuch",
    }
    for sides, said in cases.items():
        assert main(["data", "copy", *sides]) == 2
        assert capsys.readouterr().err == f"in2r: {said}\n"
    assert not (tmp_path / "back").exists()
    fsspec.filesystem("memory").pipe_file(f"{url}/ok.txt", b"x")
    for source in (f"{url}/ok.txt", __file__):
        with pytest.raises(InputError, match=": a file; expected a folder"):
            copy_folder(source, str(tmp_path / "back"))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(InputError, match=r"^s3://\*\*\*@b/x: Install s3fs to access S3"):
        copy_folder("s3://key:secret@b/x", "x")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(InputError, match=r'^s3://b/x: stores need fsspec: pip install "in2r\[store\]"$'):
        copy_folder("s3://b/x", "x")


def test_one_process_copies_into_a_folder(tmp_path: Path) -> None:
    data, back = make_folder(tmp_path / "data"), tmp_path / "back"
    back.mkdir()
    held = claim(back / CLAIM)
    assert held is not None
    with pytest.raises(InputError, match=r"back: process \d+ on .* copies into it; if it is gone, remove .*\.copying"):
        copy_folder(str(data), str(back))
    held.release()
    assert copy_folder(str(data), str(back)).files == 4


def test_what_logs_in_is_not_shown() -> None:
    for text, shown in {
        "s3://key:secret@bucket/f30k": "s3://***@bucket/f30k",
        "https://user:p@ss@host/x?X-Amz-Signature=1&b=2": "https://***@host/x?***",
        "403, url='https://host/a?sig=abc' at 12": "403, url='https://host/a?***' at 12",
        "s3://bucket/a@b": "s3://bucket/a@b",
        "is it there? s3://b": "is it there? s3://b",
    }.items():
        assert without_login(text) == shown


def test_what_logs_in_is_not_shown_where_a_library_says_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("memory://key:se%2Fcret@bucket/data")

    def info(path: str) -> None:
        raise ValueError('Invalid bucket\n"key:se%2Fcret@bucket" (se/cret)')

    monkeypatch.setattr(store._system, "info", info)
    with pytest.raises(InputError) as caught:
        store.files()
    assert str(caught.value) == 'memory://***@bucket/data: Invalid bucket "***@bucket" (***)'


def test_large_arrays_are_compared_by_the_blocks_of_the_fingerprint_other_files_whole(tmp_path: Path) -> None:
    size = 3 * 2**20
    ends, between = bytearray(size), bytearray(size)
    ends[-1] = 1
    between[2**16 + 5] = 1
    found = {}
    for name in ("x.npy", "x.tsv"):
        for which, data in (("zeros", bytes(size)), ("ends", ends), ("between", between)):
            (tmp_path / which).write_bytes(data)
            with (tmp_path / which).open("rb") as stream:
                found[name, which] = digest(stream, name, size)
    assert found["x.npy", "zeros"] == found["x.npy", "between"] != found["x.npy", "ends"]
    assert len({found["x.tsv", which] for which in ("zeros", "ends", "between")}) == 3


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def test_from_a_web_server_that_sends_no_parts(tmp_path: Path) -> None:
    """Its arrays cannot be compared, so they are copied again."""
    pytest.importorskip("aiohttp", reason="aiohttp, by which fsspec reads https://, is not installed")
    data, back = make_folder(tmp_path / "data"), tmp_path / "back"
    (data / "with a space.txt").write_text("x")
    (data / ".tmp-pairs.x.tsv").unlink()

    def handler(*given: Any) -> _Quiet:
        return _Quiet(*given, directory=str(data))

    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert copy_folder(url, str(back)).files == 5
        assert contents(back) == contents(data)
        again = copy_folder(url, str(back))
        server.shutdown()
    assert (again.files, again.kept) == (3, 2)

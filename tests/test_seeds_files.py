"""Derived seeds, and files that are whole or absent."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.data.fingerprint import file_hash
from in2r.data.text.vocabulary import Vocabulary
from in2r.data.text.word_vectors import load_word_vectors
from in2r.errors import InputError
from in2r.files import (
    atomic_path,
    parse_json,
    read_json,
    remove_temporaries,
    require_free_space,
    require_writable,
    sha256_file,
    write_json,
    write_text,
)
from in2r.seeds import derive, numpy_generator, torch_generator


def test_derived_seeds_are_fixed_for_ever() -> None:
    """A change here changes every run ever made: it must not happen unnoticed."""
    assert derive(0) == 4761921975702974394
    assert derive(0, "dropout", "A", 3, 7) == 5846124543651391315


def test_a_seed_depends_on_every_name_and_on_their_order() -> None:
    names = [
        (0,),
        (1,),
        (0, "a"),
        (0, "b"),
        (0, "a", "b"),
        (0, "b", "a"),
        (0, "ab"),
        (0, "a", 1),
        (0, "a", 11),
        (0, "a", 1, 1),
        (0, "a1"),
        (0, "", "a"),
    ]
    assert len({derive(*name) for name in names}) == len(names)
    assert all(0 <= derive(seed) < 2**63 for seed in range(100))


def test_generators_are_functions_of_their_names() -> None:
    def draws(*names: str | int) -> tuple[float, float]:
        drawn = torch.rand((), generator=torch_generator(0, *names))
        return float(drawn), float(numpy_generator(0, *names).random())

    torch.manual_seed(1)
    first = draws("x")
    torch.manual_seed(2)
    assert draws("x") == first
    assert draws("y") != first


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    with atomic_path(target) as temporary:
        assert temporary.suffix == ".txt"
        temporary.write_text("half", encoding="utf-8")
        assert not target.exists()
    assert target.read_text(encoding="utf-8") == "half"
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")

    def write_and_fail() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("new", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_of_the_file_system_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as full, atomic_path(tmp_path / "x.json"):
        raise OSError(28, "No space left on device")  # as a write on a full disk does, without a name
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(IsADirectoryError) as folder, atomic_path(tmp_path / "folder.json"):
        pass
    long = str(tmp_path / ("x" * 300))
    with pytest.raises(OSError, match="too long") as early, atomic_path(long):  # before there is a temporary file
        pass
    assert (full.value.filename, folder.value.filename) == (f"{tmp_path}/x.json", f"{tmp_path}/folder.json")
    assert early.value.filename == long
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as absent, atomic_path(tmp_path / "x.json"):
        (tmp_path / "source.npy").read_bytes()
    with pytest.raises(OSError, match="encoder") as bare, atomic_path(tmp_path / "x.json"):
        raise OSError("encoder error")  # a library's own, without a number
    assert absent.value.filename == f"{tmp_path}/source.npy"
    assert (bare.value.filename, bare.value.strerror) == (f"{tmp_path}/x.json", "encoder error")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that opens and cannot be read")
def test_a_file_that_fails_while_it_is_read_is_named() -> None:
    file = Path("/proc/self/mem")
    vocabulary = Vocabulary.build([["dog"]], 1)
    for read in (sha256_file, file_hash, lambda path: load_word_vectors(path, vocabulary, 3)):
        with pytest.raises(OSError, match="Input/output error") as failed:
            read(file)
        assert failed.value.filename == "/proc/self/mem"


def test_what_a_killed_process_left_can_be_removed(tmp_path: Path) -> None:
    write_text(tmp_path / "whole.txt", "x")
    with atomic_path(tmp_path / "file.txt") as temporary:
        shutil.copy(temporary, temporary.with_suffix(".left"))
    assert len(list(tmp_path.iterdir())) == 3
    remove_temporaries(tmp_path)
    remove_temporaries(tmp_path / "absent")
    assert {path.name for path in tmp_path.iterdir()} == {"whole.txt", "file.txt"}


def test_the_files_mode_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "atomic", "x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": [1, None, 0.1]})
    assert read_json(tmp_path / "a.json") == {"é": [1, None, 0.1]}
    with pytest.raises(InputError, match=r"absent\.json: no such file"):
        read_json(tmp_path / "absent.json")
    (tmp_path / "b.json").write_text('{"a": 1,\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"b\.json: not valid JSON .*line 2"):
        read_json(tmp_path / "b.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(JSON)
def test_json_without_repeated_keys_is_read_as_ever(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@given(st.lists(JSON, min_size=1, max_size=4), st.text(max_size=3), st.integers(0, 3), st.booleans())
def test_a_key_that_stands_twice_is_refused_with_its_line(
    values: list[object], key: str, place: int, escaped: bool
) -> None:
    """The object lies deep in others, whose texts hold braces, quotes and colons too."""
    name = json.dumps(key, ensure_ascii=escaped)
    members = [f"{name}: 1", *(f'"{number}other": {json.dumps(value)}' for number, value in enumerate(values))]
    members.insert(1 + place % len(members), f"{json.dumps(key, ensure_ascii=not escaped)} : 2")
    line = 2 + next(number for number, member in enumerate(members[1:], start=1) if member.endswith(" : 2"))
    text = '[{"a": {}, "}{": "\\\\\\":{"}, {"b":\n{' + ",\n".join(members) + "}}]"
    with pytest.raises(json.JSONDecodeError, match="stands twice in an object") as error:
        parse_json(text)
    assert error.value.lineno == line


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc").startswith("ba7816bf8f01cfea414140de5dae2223")


def test_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 6, 3 * 2**20))
    require_free_space(tmp_path, 3 * 2**20)
    with pytest.raises(InputError, match=r"4\.0 MiB needed, 3\.0 MiB free"):
        require_free_space(tmp_path, 4 * 2**20)
    with pytest.raises(InputError, match=r"3\.1 MiB needed, 3\.0 MiB free"):  # never "3 needed, 3 free"
        require_free_space(tmp_path, 3 * 2**20 + 1)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    require_writable(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: nothing can be written here \(Not a directory\)"):
        require_writable(tmp_path / "file")

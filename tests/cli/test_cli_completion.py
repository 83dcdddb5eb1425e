"""`in2r completion`: the scripts, in the shells that they are for."""

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from in2r.cli.main import main

TYPED = {
    "trai\t": "train",
    "noise ma\t": "noise make",
    "demo --im\t7": "demo --images 7",
    "completion fi\t": "completion fish",
    "train in2r/rel\t": "train in2r/released",
    "train triplet+recipe/s\t": "train triplet+recipe/softmax",
    "train a+b+pcsr/r\t": "train a+b+pcsr/released",
    "config show gscplus/cc\t": "config show gscplus/cc152k",
    "train mysett\t": "train mysettings.yaml",
    "data check myfol\t": "data check myfolder",
    "bench run mysett\t--out myfol\t": "bench run mysettings.yaml --out myfolder",
}
"""what is typed after `in2r` → what the shell makes of it, in a folder that holds myfolder/ and mysettings.yaml"""
BEGIN = {
    "bash": (["--norc", "--noprofile", "-i"], "source ./script\n"),
    "zsh": (["-f", "-i"], 'autoload -U compinit; compinit -D -u\neval "$(<./script)"\n'),
}
SAY = "in2r() { printf '\\n<%s>\\n' \"$*\"; }\nPS1='ready:'\n"
"""a function in place of the command says how it was called; the prompt says when the shell reads keys"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "myfolder").mkdir()
    (tmp_path / "mysettings.yaml").touch()
    return tmp_path


def write_script(shell: str, file: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} (apt-get install {shell})")
    assert main(["completion", shell]) == 0
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    return file


@pytest.mark.parametrize("shell", list(BEGIN))
def test_a_person_types_and_presses_tab(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, begin = BEGIN[shell]
    write_script(shell, folder / "script", capsys)
    (folder / "begin").write_text(begin + SAY, encoding="utf-8")
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(folder)}
    process = subprocess.Popen(
        [shell, *options], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        os.write(ours, b"source ./begin\n")
        read_until_ready(ours)
        for typed, expected in TYPED.items():
            os.write(ours, f"in2r {typed}\n".encode())
            said = read_until_ready(ours).rpartition("\n<")[2].partition(">")[0]
            assert [word.rstrip("/") for word in said.split()] == expected.split(), typed  # zsh drops it at the end
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until_ready(terminal: int) -> str:
    """Return what a shell says until its next prompt."""
    seen, end = "", time.monotonic() + 60
    while "ready:" not in seen:
        assert select.select([terminal], [], [], end - time.monotonic())[0], seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def test_fish_offers_what_was_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_script("fish", folder / "script", capsys)
    for typed, expected in TYPED.items():
        before, _, _ = typed.rpartition("\t")
        asked = f"source ./script; complete -C 'in2r {before.replace(chr(9), ' ')}'"
        command = ["fish", "--no-config", "-c", asked]
        environment = {**os.environ, "HOME": str(folder)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        offered = {line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()}
        assert expected.removesuffix(" 7").split()[-1] in offered, (typed, done.stdout, done.stderr)


def test_printing_a_script_does_not_import_pytorch() -> None:
    code = "import sys; from in2r.cli.main import main; main(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_shtab_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == 'in2r: shell completion needs shtab: pip install "in2r[completion]"\n'

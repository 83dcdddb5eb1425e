"""Several processes from the command line: started by PyTorch's launcher, planned, and refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from in2r.cli.main import main
from in2r.runs.folder import RunFolder

SMALL = ["data.caption_vectors=vecs", "model.dim=8", "train.epochs=1", "train.batch_size=12", "train.device=cpu"]


def test_torchrun_trains_and_everything_is_said_once(data: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "in2r"]
    command = [*launcher, "train", "sce", f"data.path={data}", *SMALL, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("reading the data", "processes  2; each encodes 6 of 12 images", "epoch   1/1", "model: "):
        assert done.stdout.count(said) == 1
    assert "WARNING" not in done.stderr.replace("WARNING: epoch", "")
    folder = RunFolder(tmp_path / "run")
    assert folder.info()["processes"] == 2
    assert (folder.model / "card.md").is_file() or any(folder.model.iterdir())
    assert main(["eval", str(folder.path)]) == 0


def test_a_plan_is_shown_and_nothing_is_made(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sce", f"data.path={data}", *SMALL, "--plan", "--processes", "4"]) == 0
    assert "4; each encodes 3 of 12 images" in capsys.readouterr().out
    assert main(["train", "sce", f"data.path={data}", *SMALL, "--plan", "--processes", "16"]) == 0
    assert "16; each encodes all 12 (too few to share out) images" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("WORLD_SIZE", "3")  # as a launcher says it
    assert main(["train", "sce", f"data.path={data}", *SMALL, "--plan"]) == 0
    assert "3; each encodes 4 of 12 images" in capsys.readouterr().out
    monkeypatch.setenv("RANK", "1")
    assert main(["train", "sce", f"data.path={data}", *SMALL, "--plan"]) == 0
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--plan", "--processes", "0"], ["--out", "run", "--processes", "2"]])
def test_processes_are_planned_here_and_started_by_a_launcher(
    arguments: list[str],
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sce", f"data.path={data}", *arguments]) == 2
    assert "expected a number from 1 on, together with --plan; a launcher starts" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_of_several_processes_one_does_what_they_do_not_share(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, number, works in (("2", "1", False), ("2", "0", True), ("1", "1", True)):
        monkeypatch.setenv("WORLD_SIZE", count)
        monkeypatch.setenv("RANK", number)
        assert main(["config", "show", "sce"]) == 0
        assert ("learning_rate" in capsys.readouterr().out) == works

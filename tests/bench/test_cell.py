"""One cell: its settings with all places filled in, and the noise index that is drawn for it."""

import json
import shutil
import signal
import subprocess
import sys
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from in2r.bench.cell import STOPPED, Placement, placed_config
from in2r.bench.folder import GridFolder
from in2r.bench.grid_file import expand
from in2r.runs.settings import RunConfig

SETTINGS = {
    "preset": "in2r",
    "data": {"path": "tiny", "caption_vectors": "vecs"},
    "noise": {"level": "caption", "ratio": 0.4},
}


def grid(**more: Any) -> dict[str, Any]:
    return {"settings": deepcopy(SETTINGS), "groups": {"rows": {"axes": {"row": {"all": {}}}}}, **more}


def placed(values: dict[str, Any], folder: Path, root: Path) -> list[RunConfig]:
    """Return the settings of all cells as they are run."""
    return [placed_config(GridFolder(folder), cell, Placement(str(root))) for cell in expand(values).cells]


def test_foreign_index_files_are_named_by_ratio_and_seed(data_root: Path, tmp_path: Path) -> None:
    values = grid(seeds=[4])
    values["settings"]["noise"]["index"] = "files/{level}_{ratio}_{seed}_{other}.npy"
    values["settings"]["data"]["vocabulary"] = "words.json"
    [cell] = expand(values).cells
    config = placed_config(GridFolder(tmp_path / "grid"), cell, Placement(str(data_root)))
    assert config.noise.index == str(data_root / "files" / "caption_0.4_4_{other}.npy")
    assert config.data.vocabulary == str(data_root / "words.json")
    assert config.data.path == str(data_root / "tiny")


def test_data_folders_of_one_name_have_noise_of_their_own(data_root: Path, tmp_path: Path) -> None:
    values = grid()
    files = []
    for root in ("here", "there"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "tiny").symlink_to(data_root / "tiny")
        values["settings"]["data"]["path"] = f"{root}/tiny"
        [cell] = expand(values).cells
        files.append(placed_config(GridFolder(tmp_path / "grid"), cell, Placement(str(tmp_path))).noise.index)
    level, ratio = values["settings"]["noise"]["level"], values["settings"]["noise"]["ratio"]
    assert files[0] != files[1]
    assert all(Path(str(file)).name.startswith("tiny-") for file in files)
    assert all(str(file).endswith(f"_{level}_{ratio:g}_s0.npy") for file in files)


def make_table(folder: Path, images: int = 40) -> None:
    """Write a pair table without a split column; its images have 1, 2, 3, 1, ... captions."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "images.npy", np.ones((images, 1, 4), np.float32))
    rows = [f"{image}\tcaption\n" for image in range(images) for _ in range(1 + image % 3)]
    (folder / "pairs.tsv").write_text("image\tcaption\n" + "".join(rows))


def test_noise_is_drawn_where_captions_are_vectors_only(data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "tiny", tmp_path / "tiny")
    for file in (tmp_path / "tiny").glob("*_caps.txt"):
        file.unlink()
    files = [placed(grid(), tmp_path / name, root)[0].noise.index for name, root in (("a", data_root), ("b", tmp_path))]
    with_texts, without = (np.load(str(file)) for file in files)
    np.testing.assert_array_equal(with_texts, without)


def test_each_split_that_is_drawn_has_noise_of_its_own(tmp_path: Path) -> None:
    make_table(tmp_path / "tiny")
    values = grid(groups={"rows": {"axes": {"data.split_seed": [0, 1]}}})
    values["settings"]["data"] = {"path": "tiny"}
    first, second = (config.noise.index for config in placed(values, tmp_path / "grid", tmp_path))
    assert first is not None
    assert Path(first).name == "tiny_caption_0.4_s0.npy"  # as ever where nothing else is asked
    assert first != second
    assert len(np.load(str(first))) != len(np.load(str(second)))


def test_each_layout_of_a_folder_has_noise_of_its_own(data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "tiny", tmp_path / "tiny")
    make_table(tmp_path / "tiny")
    values = grid(groups={"rows": {"axes": {"data.layout": ["precomp", "table"]}}})
    values["settings"]["data"] = {"path": "tiny"}
    sizes = [len(np.load(str(config.noise.index))) for config in placed(values, tmp_path / "grid", tmp_path)]
    assert sizes[0] == 60  # 12 images × 5
    assert sizes[1] != 60


def test_a_table_without_some_rows_has_noise_of_its_own(tmp_path: Path) -> None:
    make_table(tmp_path / "tiny")
    values = grid(groups={"rows": {"axes": {"data.skip_missing": [True]}}})
    values["settings"]["data"] = {"path": "tiny"}
    with (tmp_path / "tiny" / "pairs.tsv").open("a") as table:
        table.write("40\tno such image\n")
    [config] = placed(values, tmp_path / "grid", tmp_path)
    assert Path(str(config.noise.index)).name == "tiny_skip_caption_0.4_s0.npy"


def test_a_cell_whose_runner_is_gone_is_asked_to_stop() -> None:
    """Its standard input ends then."""
    command = [sys.executable, "-c", "from in2r.bench.cell import _stop_without_runner as wait; wait()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        process.communicate(b"{}\n")
    assert process.returncode == -signal.SIGTERM


ASKED_INSIDE_COMPILED_CODE = """
import os, signal, sys
from in2r.bench import cell

def train(*_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except SystemExit:
        raise ImportError("as compiled code says it")

cell.train_and_test = train
sys.exit(cell.main(sys.argv[1]))
"""


def test_a_cell_that_is_asked_to_stop_while_it_imports_has_not_failed(tmp_path: Path) -> None:
    """Compiled code that is loaded meanwhile turns the exit into an ImportError."""
    folder, [cell] = GridFolder(tmp_path), expand(grid()).cells
    asked = {"cell": asdict(cell), "place": asdict(Placement()), "folds": 0}
    command = [sys.executable, "-c", ASKED_INSIDE_COMPILED_CODE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(asked)}\n".encode())
        process.stdin.flush()
        process.wait()
    assert process.returncode == STOPPED
    assert not folder.failure_file(cell.name).exists()

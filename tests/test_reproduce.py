"""docs/reproduce.md: tables from the grids, commands that resolve, rows that run on folders of the field's form."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from in2r.bench.folder import GridFolder
from in2r.bench.grid import Grid, cell_config
from in2r.bench.grid_file import expand, read_grid
from in2r.bench.paper import paper_methods
from in2r.cli.bench_run import chosen
from in2r.cli.main import build_parser, main

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "benchmarks"))  # scripts beside each other
reproduce = importlib.import_module("reproduce")
PAGE = (CHECKOUT / "docs" / "reproduce.md").read_text(encoding="utf-8")
ROWS = [row for grids in reproduce.GRIDS.values() for grid in grids for row in reproduce.printed_rows(grid)]


def test_the_tables_of_the_page_are_those_of_the_grids() -> None:
    for name, part in reproduce.parts().items():
        assert f"<!-- {name} -->\n{part}\n<!-- end -->" in PAGE, "python benchmarks/reproduce.py writes them"


def test_every_command_of_the_page_chooses_its_row_and_no_other() -> None:
    grids: dict[str, Grid] = {name: expand(read_grid(name)) for name in {row.grid for row in ROWS}}
    assert len(ROWS) > 100
    for row in ROWS:
        assert f"`{row.command}`" in PAGE
        args = build_parser().parse_args(shlex.split(row.command)[1:])
        cells = chosen(grids[args.grid], args.group, args.only, args.seed)
        assert [cell.name for cell in cells] == list(row.row.cells.values()), row.command


def test_every_printed_row_of_a_method_that_can_be_run_has_a_command() -> None:
    """All but those of which there is no code; IN²R's backbone GPO is its own row of Table 1."""
    for dataset in reproduce.TRAINING_PAIRS:
        found = {row.figure.method for row in ROWS if row.figure.dataset == dataset}
        missing = set(paper_methods(dataset)) - found
        assert missing == {*reproduce.ELSEWHERE, "backbone: gpo"} & set(paper_methods(dataset))


def test_the_protocols_of_the_rows_are_those_that_the_page_names() -> None:
    levels = {
        (row.figure.dataset, row.figure.method, row.figure.noise): cell_config(row.cell).noise.level for row in ROWS
    }
    images = {key for key, level in levels.items() if level == "image"}
    expected = {(data, method, ratio) for data in ("flickr30k", "mscoco_1k_5fold") for method in ("DECL", "L2RM")
                for ratio in (0.2, 0.4, 0.6, 0.8)}  # fmt: skip
    expected |= {("flickr30k", "NCR", 0.2), ("flickr30k", "NCR", 0.8), ("mscoco_1k_5fold", "NCR", 0.8)}
    assert images == expected
    assert {level for (data, _, _), level in levels.items() if data == "cc152k"} == {None}


def test_the_other_half_of_a_row_of_one_backbone_is_the_same_row_on_another_one() -> None:
    """The command line moves the backbone of all rows, with the same seeds, noise and schedule."""
    [sgr, other] = [
        {cell.name: cell_config(cell) for cell in expand(read_grid("peers_flickr30k", overrides)).cells}
        for overrides in ([], ["model.backbone=saf"])
    ]
    assert sgr.keys() == other.keys()
    halves = [name for name in sgr if "one-backbone" in name]
    assert len(halves) == 3 * (2 * 4 + 1)
    for name in halves:
        assert (sgr[name].model.backbone, other[name].model.backbone) == ("sgr", "saf")
        assert (sgr[name].noise, sgr[name].method, sgr[name].train) == (
            other[name].noise, other[name].method, other[name].train,
        )  # fmt: skip


# --- rows that are run, on folders of the field's form


def make_folder(folder: Path, splits: dict[str, int], *, tsv: bool = False) -> Path:
    """Write features of 36 regions × 4, and five captions an image, or one in a tsv."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    words = ["dog", "cat", "man", "runs", "sits", "red", "blue"]
    for split, images in splits.items():
        np.save(folder / f"{split}_ims.npy", draws.standard_normal((images, 36, 4)).astype(np.float32))
        captions = [" ".join(draws.choice(words, 4)) for _ in range(images if tsv else 5 * images)]
        lines = [f"{number}\t{text}" for number, text in enumerate(captions)] if tsv else captions
        (folder / f"{split}_caps.{'tsv' if tsv else 'txt'}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


TINY = [
    "model.dim=8", "model.word_dim=4", "model.sgr_dim=4", "train.epochs=2", "method.common_warmup=1",
    "train.batch_size=12", "partition.batch_size=12", "data.min_count=1", "train.device=cpu", "train.threads=1",
]  # fmt: skip
"""settings that make a row small; its method, backbone, noise and test are those of the grid"""


@pytest.mark.slow
@pytest.mark.usefixtures("forked_cells")
@pytest.mark.parametrize(
    ("grid", "group", "method", "splits", "figure"),
    [
        ("peers_flickr30k", "60", "NCR", {"train": 8, "dev": 4, "test": 4}, "468.6"),
        ("peers_mscoco", "60", "CREAM", {"train": 8, "dev": 5, "testall": 10}, "509.7 ‡"),
        ("peers_cc152k", "peers", "PC²", {"train": 30, "dev": 6, "test": 6}, "364.1"),
    ],
)
def test_a_row_runs_and_stands_beside_its_printed_figure(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    grid: str,
    group: str,
    method: str,
    splits: dict[str, int],
    figure: str,
) -> None:
    make_folder(tmp_path / str(read_grid(grid)["settings"]["data"]["path"]), splits, tsv=grid == "peers_cc152k")
    [row] = [row for row in reproduce.printed_rows(grid) if (row.group.name, row.row.labels[0]) == (group, method)]
    words = shlex.split(row.command)[1:]
    words[words.index("--out") + 1] = str(tmp_path / "grid")
    assert main([*words, *TINY, "--data", str(tmp_path), "--seed", "0"]) == 0
    [record] = GridFolder(tmp_path / "grid").records.values()
    assert record.config.model.backbone == "sgr"
    assert record.result.protocol.evaluated.folds == (5 if "testall" in splits else 1)
    assert [epoch.phase for epoch in record.epochs] == ["warm-up", "main"]
    capsys.readouterr()
    assert main(["bench", "table", str(tmp_path / "grid"), "--group", group, "--format", "md"]) == 0
    said = capsys.readouterr().out
    [line] = re.findall(rf"^\| {method} \| 1 of 3 .*$", said, re.MULTILINE)
    assert line.endswith(f"| {figure} |")
    assert "UCPM (published, no code" in said

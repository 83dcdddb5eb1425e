"""Tables: the arithmetic by hand, what may be compared and what not, every format, and the command."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from table_records import grid_values, make_grid, make_record, record_values, records_of

from in2r.bench.compare import RSUM, SINGLE, Difference, Spread, paired_difference, spread
from in2r.bench.grid import Grid
from in2r.bench.grid_file import expand
from in2r.bench.groups import group_records, read_group_records
from in2r.bench.notes import notes
from in2r.bench.protocols import Duplicates, Forced
from in2r.bench.records import Record, parse_record, write_record
from in2r.bench.render import render
from in2r.bench.sheets import sheets
from in2r.bench.tables import Table, make_tables, read_tables
from in2r.cli.main import main
from in2r.errors import InputError
from in2r.settings_text import merge

ALL = {"main_none_s0": 300.0, "main_none_s1": 310.0, "main_top1_s0": 301.0, "main_top1_s1": 313.0}
RECTIFIERS = {"none": {"method": {"rectifier": "none"}}, "top1": {"method": {"rectifier": "top1"}}}


def only(grid: Grid, records: dict[str, Record], minus: str | None = None) -> Table:
    (table,) = make_tables(group_records(grid, records), minus)
    return table


def with_protocol(record: Record, **protocol: Any) -> Record:
    return replace(record, result=replace(record.result, protocol=replace(record.result.protocol, **protocol)))


# --- arithmetic


def test_spread_by_hand() -> None:
    assert spread([1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3)
    assert spread([5.0]) == Spread(5.0, None, 1)


def test_paired_difference_by_hand() -> None:
    # differences 1, 2, 1: mean 4/3, s = 1/√3, s/√3 = 1/3, t(0.975, 2) = 4.302653
    found = paired_difference({0: 10.0, 1: 12.0, 2: 11.0, 7: 99.0}, {0: 9.0, 1: 10.0, 2: 10.0, 8: 1.0})
    assert found is not None
    assert found.n == 3
    assert (found.mean, found.low, found.high) == pytest.approx((4 / 3, 4 / 3 - 1.434218, 4 / 3 + 1.434218), abs=1e-6)
    assert paired_difference({0: 3.0}, {0: 1.0, 1: 1.0}) == Difference(2.0, None, None, 1)
    assert paired_difference({0: 3.0}, {1: 1.0}) is None


@given(st.lists(st.tuples(st.floats(0, 600), st.floats(0, 600)), min_size=2, max_size=6))
def test_interval_is_that_of_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    ours, others = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    found = paired_difference(ours, others)
    differences = {round(ours[seed] - others[seed], 6) for seed in ours}
    assert found is not None
    if len(differences) > 1:  # SciPy has no interval for equal differences
        interval = ttest_rel(list(ours.values()), list(others.values())).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-6)
    else:
        assert (found.low, found.high) == pytest.approx((found.mean, found.mean), abs=1e-4)


def test_rows_of_a_table() -> None:
    grid = make_grid(baseline="none")
    records = records_of(grid, ALL, single=290.0)
    cells = {cell.name: cell for cell in grid.cells}
    for seed, seconds in ((0, 150.0), (1, 350.0)):
        name = f"main_top1_s{seed}"
        records[name] = make_record(cells[name], ALL[name], single=294.0 + 2 * seed, seconds=seconds, taken_over=True)
    table = only(grid, records)
    (block,) = table.blocks
    none, top1 = block.lines
    assert none.spreads[RSUM] == Spread(305.0, pytest.approx(50**0.5), 2)
    assert top1.spreads[SINGLE] == Spread(295.0, pytest.approx(2**0.5), 2)
    assert top1.spreads["steps"].mean == 11
    assert top1.spreads["ensemble_i2t_r1"].mean == pytest.approx(307 / 6)
    assert top1.differences[RSUM].mean == 2.0  # +1, +3
    assert top1.differences[RSUM].high == pytest.approx(2 + 12.706205, abs=1e-5)  # t(0.975, 1) · √2 / √2
    assert top1.differences[SINGLE].mean == 5.0
    assert top1.time_ratio == pytest.approx((1.5 + 3.5) / 2)
    assert (none.time_ratio, none.differences) == (1.0, {})
    assert any("2 runs took over warm-up epochs" in note for note in notes(table, "x"))


def test_differences_to_another_row() -> None:
    table = only(make_grid(), records_of(make_grid(), ALL))
    assert all(not line.differences for line in table.blocks[0].lines)
    table = only(make_grid(baseline="none"), records_of(make_grid(), ALL), minus="top1")
    assert table.blocks[0].lines[0].differences[RSUM].mean == -2.0
    with pytest.raises(InputError, match=r"group main has no row top2; labels of rectifier: none, top1"):
        only(make_grid(), {}, minus="top2")


def test_baseline_agrees_on_the_other_axes() -> None:
    axes = {"rectifier": RECTIFIERS, "model.dim": [8, 16]}
    grid = make_grid(axes, seeds=[0], baseline="none")
    rsums = {"main_none_8_s0": 100.0, "main_none_16_s0": 200.0, "main_top1_8_s0": 101.0, "main_top1_16_s0": 204.0}
    (block,) = only(grid, records_of(grid, rsums)).blocks
    found = {line.labels: line.differences[RSUM].mean for line in block.lines if not line.is_baseline}
    assert found == {("top1", "8"): 1.0, ("top1", "16"): 4.0}


# --- what may be compared


def test_noise_ratios_are_blocks() -> None:
    axes = {"rectifier": RECTIFIERS, "noise.ratio": [0.2, 0.6]}
    grid = make_grid(axes, seeds=[0], baseline="none")
    rsums = {"main_none_0.2_s0": 320.0, "main_none_0.6_s0": 300.0, "main_top1_0.2_s0": 310.0, "main_top1_0.6_s0": 301.0}
    records = {
        name: make_record(cell, rsums[name], sha256=f"hash{name.split('_')[2]}", realised=float(name.split("_")[2]))
        for name, cell in ((cell.name, cell) for cell in grid.cells)
    }
    blocks = only(grid, records).blocks
    assert [[line.labels[1] for line in block.lines] for block in blocks] == [["0.2", "0.2"], ["0.6", "0.6"]]
    assert [block.best[RSUM] for block in blocks] == [320.0, 301.0]
    assert [block.lines[1].differences[RSUM].mean for block in blocks] == [-10.0, 1.0]
    assert "caption-level noise 0.2 (realised 0.2000), index hash0.2" in blocks[0].heading


def test_another_index_for_one_seed_is_another_group() -> None:
    grid = make_grid(baseline="none")
    records = records_of(grid, ALL)
    cells = {cell.name: cell for cell in grid.cells}
    records["main_top1_s1"] = make_record(cells["main_top1_s1"], 313.0, sha256="other")
    blocks = only(grid, records).blocks
    assert [[line.labels for line in block.lines] for block in blocks] == [[("none",)], [("top1",)]]
    assert all(not block.best and not line.differences for block in blocks for line in block.lines)
    assert blocks[1].lines[0].spreads[RSUM].n == 2  # a mean over its own seeds stands, beside nothing
    assert blocks[1].lines[0].time_ratio is None


def test_every_part_of_the_protocol_separates() -> None:
    grid = make_grid(seeds=[0])
    rsums = {"main_none_s0": 300.0, "main_top1_s0": 301.0}
    base = records_of(grid, rsums)
    assert len(only(grid, base).blocks) == 1
    protocol = base["main_top1_s0"].result.protocol
    assert protocol.noise is not None
    changes: list[dict[str, object]] = [
        {"evaluated": replace(protocol.evaluated, **{name: value})}
        for name, value in (
            ("split", "dev"), ("images", 9), ("captions", 45), ("folds", 5),
            ("duplicates", Duplicates("right", 0, 2)),
        )
    ]  # fmt: skip
    changes += [
        {"data": replace(protocol.data, **{name: value})}
        for name, value in (("fingerprint", "e" * 64), ("captions_as", "words"), ("dev_rule", "ncr"))
    ]
    changes += [{"noise": replace(protocol.noise, **{name: "image"})} for name in ("level", "sha256")]
    changes += [{"noise": None}, {"selection": replace(protocol.selection, rule="last epoch")}]
    changes += [{"noise": replace(protocol.noise, **{name: 0.5})} for name in ("realised", "nominal")]
    for change in changes:
        records = {**base, "main_top1_s0": with_protocol(base["main_top1_s0"], **change)}
        assert len(only(grid, records).blocks) == 2, change


def test_results_without_a_word_of_duplicates_counted_them_as_wrong() -> None:
    grid = make_grid(seeds=[0])
    base = records_of(grid, {"main_none_s0": 300.0, "main_top1_s0": 301.0})
    protocol = base["main_top1_s0"].result.protocol
    for counted, headings in (("wrong", 1), ("right", 2)):
        evaluated = replace(protocol.evaluated, duplicates=Duplicates(counted, 0, 2))
        records = {**base, "main_top1_s0": with_protocol(base["main_top1_s0"], evaluated=evaluated)}
        blocks = only(grid, records).blocks
        assert len(blocks) == headings
        assert ["copies of the right item count as right" in block.heading for block in blocks] == [False, True][
            :headings
        ]


def test_seeds_of_two_protocols_have_no_mean() -> None:
    grid = make_grid(baseline="none")
    records = records_of(grid, ALL)
    evaluated = replace(records["main_top1_s1"].result.protocol.evaluated, folds=5)
    records["main_top1_s1"] = with_protocol(records["main_top1_s1"], evaluated=evaluated)
    none, top1 = only(grid, records).blocks
    assert "ITS SEEDS DIFFER IN PROTOCOL" in top1.heading
    assert "mean of 5 folds" in top1.heading
    assert top1.lines[0].spreads == {}
    assert none.lines[0].spreads[RSUM].n == 2


def test_truth_is_marked_and_never_best() -> None:
    axes = {
        "training": {
            "none": {"method": {"rectifier": "none"}},
            "top1": {"method": {"rectifier": "top1"}},
            "oracle": {"noise": {"oracle": True}},
            "hidden": {"noise": {"hide_original": True}},
        }
    }
    grid = make_grid(axes, seeds=[0], baseline="none")
    rsums = {"main_none_s0": 300.0, "main_top1_s0": 301.0, "main_oracle_s0": 330.0, "main_hidden_s0": 329.0}
    table = only(grid, records_of(grid, rsums))
    (block,) = table.blocks
    assert [line.is_ranked for line in block.lines] == [True, True, False, False]
    assert block.best[RSUM] == 301.0
    assert block.lines[2].differences[RSUM].mean == 30.0
    text = render([table], "md", "x")
    assert "| **301.0** |" in text
    assert "| *oracle †* |" in text
    assert "| *hidden †* |" in text
    assert "**330.0**" not in text
    assert "\\textit{oracle \\dag{}}" in render([table], "latex", "x")


@pytest.mark.parametrize("when", ["training", "now"])
def test_forced_is_marked_and_never_best(when: str) -> None:
    axes = {"rectifier": {**RECTIFIERS, "mean": {"method": {"rectifier": "mean"}}}}
    grid = make_grid(axes, baseline="none")
    records = records_of(grid, {**ALL, "main_mean_s0": 400.0, "main_mean_s1": 400.0})
    assert [line.is_ranked for line in only(grid, records).blocks[0].lines] == [True, True, True]
    forced = Forced(**{when: ("data.path", "the dev split")})
    records["main_mean_s1"] = with_protocol(records["main_mean_s1"], forced=forced)
    table = only(grid, records)
    (block,) = table.blocks
    assert [line.is_ranked for line in block.lines] == [True, True, False]
    assert block.best[RSUM] == 307.0
    markdown = render([table], "md", "x")
    assert "| *mean §* | *2 of 2* |" in markdown
    assert "§ FORCED: trained or tested in spite of changed data or settings, and never ranked." in markdown
    assert "\\textit{mean \\S{}}" in render([table], "latex", "x")
    lines = {line["cell"]: line for line in csv.DictReader(io.StringIO(render([table], "csv", "x")))}
    assert {name: line["forced"] for name, line in lines.items() if line["is_forced"] == "1"} == {
        "main_mean_s0": "", "main_mean_s1": "data.path; the dev split",
    }  # fmt: skip


def test_rows_that_lack_a_seed_are_not_ranked() -> None:
    axes = {"rectifier": {**RECTIFIERS, "mean": {"method": {"rectifier": "mean"}}}}
    grid = make_grid(axes, baseline="none")
    (block,) = only(grid, records_of(grid, {**ALL, "main_mean_s1": 400.0})).blocks
    assert [line.is_ranked for line in block.lines] == [True, True, False]
    assert block.best[RSUM] == 307.0
    assert block.lines[2].differences[RSUM] == Difference(90.0, None, None, 1)


def test_means_over_other_seeds_are_pointed_out() -> None:
    said = "In brackets: means over fewer seeds than other rows have; compare such rows by paired differences only."
    grid = make_grid(baseline="none")
    less = {name: rsum for name, rsum in ALL.items() if name != "main_top1_s1"}
    table = only(grid, records_of(grid, less))
    assert said in notes(table, "x")
    top1 = next(line for line in render([table], "md", "x").splitlines() if line.startswith("| top1"))
    assert f"({ALL['main_top1_s0']:.1f})" in top1
    assert said not in notes(only(grid, records_of(grid, ALL)), "x")
    assert said not in notes(only(grid, records_of(grid, {"main_none_s0": 300.0})), "x")  # beside nothing measured
    axes = {"rectifier": RECTIFIERS, "noise.ratio": [0.2, 0.6]}  # another ratio is another block
    grid = make_grid(axes)
    names = [f"main_{row}_{cell}" for row in RECTIFIERS for cell in ("0.2_s0", "0.2_s1", "0.6_s0")]
    cells = {cell.name: cell for cell in grid.cells}
    records = {name: make_record(cells[name], 300.0, realised=float(name.split("_")[2])) for name in names}
    assert said not in notes(only(grid, records), "x")


def test_the_selected_epoch_and_epochs_of_one_group_are_named() -> None:
    grid = make_grid(seeds=[0, 1], baseline="none")
    cells = {cell.name: cell for cell in grid.cells}
    alone, other = {"single_mode_A": 1.0, "clean_fraction_A": 1.0}, {"single_mode_B": 1.0, "clean_fraction_B": 1.0}
    half = {**alone, **other, "clean_fraction_B": 0.5}  # B has one group too, but the settings split it all the same
    lines = {"main_top1_s0": half, "main_top1_s1": {**alone, **other}}
    early = {"main_none_s0": {"selection": {"epoch": 1}}}  # the warm-up's only one

    def table() -> Table:
        found = {
            name: make_record(cells[name], rsum, last=lines.get(name), protocol=early.get(name))
            for name, rsum in ALL.items()
        }
        return only(grid, found)

    text = render([table()], "md", "x")
    assert "| 1w, 2 |" in text
    assert "top1 ¶" in text
    assert "none ¶" not in text
    said = notes(table(), "x")
    assert "¶ top1: in 1.5 of 2 epochs of the main phase the losses formed one group" in "\n".join(said)
    assert any(note.startswith("Epoch: the one that dev selected, by seed; w: one of the warm-up") for note in said)
    lines |= {"main_none_s0": half, "main_none_s1": {**alone, **other}}
    assert [note for note in notes(table(), "x") if note.startswith("¶")] == [
        "¶ none; top1: in 1.5 of 2 epochs of the main phase the losses formed one group, and a network trained on all "
        "pairs with the warm-up loss."
    ]


def test_a_run_of_one_network_stands_beside_runs_of_two() -> None:
    grid = make_grid(seeds=[0], baseline="none")
    none, top1 = grid.cells
    alone = {"single_mode_A": 1.0, "clean_fraction_A": 1.0}
    records = {
        none.name: make_record(none, 299.0, single=300.0, networks="A", last=alone),
        top1.name: make_record(top1, 310.0, single=305.0),
    }
    table = only(grid, records)
    ours, theirs = table.blocks[0].lines
    assert (ours.spreads[SINGLE].mean, theirs.spreads[SINGLE].mean) == (299.0, 305.0)  # of A alone; of A and B
    assert (ours.spreads["steps"].mean, theirs.spreads["steps"].mean) == (10, 11)
    assert theirs.differences[SINGLE].mean == 6.0
    assert str(ours.main_phase) == "1 of 1"  # the only network, so the whole epoch
    lines = list(csv.DictReader(io.StringIO(render([table], "csv", "x"))))
    assert [(line["A_rsum"], line["B_rsum"]) for line in lines] == [("299.0", ""), ("304.0", "306.0")]
    assert "| none ¶ | 1 of 1 | 299.0 |" in render([table], "md", "x")


def test_what_looks_equal_is_equally_best() -> None:
    grid = make_grid(seeds=[0])
    text = render([only(grid, records_of(grid, {"main_none_s0": 300.01, "main_top1_s0": 300.04}))], "md", "x")
    assert text.count("**300.0**") == 4  # both rows; ensemble and single network


def test_a_row_alone_is_not_best() -> None:
    table = only(make_grid(), records_of(make_grid(), {"main_none_s0": 300.0}))
    assert not table.blocks[0].best


# --- what is open, what is refused


def test_open_rows_are_shown_where_they_belong() -> None:
    axes = {"rectifier": RECTIFIERS, "noise.ratio": [0.2, 0.6]}
    grid = make_grid(axes)
    blocks = only(grid, records_of(grid, {"main_none_0.6_s0": 300.0})).blocks
    shown = [(block.heading.split(" (")[0], [line.labels for line in block.lines]) for block in blocks]
    assert shown == [
        ("nothing measured yet", [("none", "0.2"), ("top1", "0.2")]),
        ("caption-level noise 0.6", [("none", "0.6"), ("top1", "0.6")]),
    ]


def test_a_group_of_which_nothing_is_measured_is_one_line() -> None:
    table = only(make_grid(baseline="none"), {})
    said = "None of 4 runs is finished yet; `in2r bench run` trains them."
    assert render([table], "md", "x") == f"### main\n\n- {said}\n"
    assert "tabular" not in render([table], "latex", "x")
    assert json.loads(render([table], "json", "x"))[0]["notes"] == [said]
    assert len(list(csv.DictReader(io.StringIO(render([table], "csv", "x"))))) == 4
    measured = only(make_grid(baseline="none"), records_of(make_grid(), {"main_none_s0": 300.0}))
    assert "| top1 | 0 of 2 | - | - |" in render([measured], "md", "x")


def refusal(record: Record) -> str:
    with pytest.raises(InputError) as caught:
        only(make_grid(), {"main_none_s0": record})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_records_of_another_cell_or_settings_are_refused() -> None:
    cells = {cell.name: cell for cell in make_grid().cells}
    record = make_record(cells["main_none_s0"], 300.0)
    assert refusal(make_record(cells["main_top1_s0"], 300.0)).startswith("record main_none_s0: is of cell main_top1_s0")
    assert "seed 1; the grid has seed 0" in refusal(replace(record, seed=1))
    values = merge(record_values(cells["main_none_s0"], 300.0), {"settings": {"method": {"gamma": 0.5}}})
    assert refusal(parse_record(values, "x")) == (
        "record main_none_s0: made with other settings than the grid has: method.gamma (0.5, now 1.0)"
    )
    assert "train.seed (0, now 1)" in refusal(with_protocol(record, changed_settings=("train.seed (0, now 1)",)))
    assert "of an unfinished run (2 epochs)" in refusal(with_protocol(record, finished=False))


def test_where_things_lie_does_not_matter() -> None:
    cell = make_grid().cells[0]
    moved = merge(record_values(cell, 300.0), {"settings": {"data": {"path": "elsewhere"}, "train": {"threads": 9}}})
    assert only(make_grid(), {cell.name: parse_record(moved, "x")}).blocks[0].lines[0].runs


def test_records_of_no_cell_are_named() -> None:
    grid = make_grid()
    records = {**records_of(grid, ALL), "old_s0": make_record(grid.cells[0], 1.0)}
    assert "Not used, since they are of no cell of the grid: records old_s0." in notes(only(grid, records), "x")


def test_a_group_is_read_whatever_is_wrong_with_the_records_of_others(tmp_path: Path) -> None:
    values = grid_values()
    values["groups"]["other"] = {"axes": {"K": {"K": {"method": {"num_neighbors": 3}}}}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    cells = {cell.name: cell for cell in expand(values).cells}
    for name, cell in cells.items():
        write_record(tmp_path / "records" / f"{name}.json", record_values(cell, 300.0))
    write_record(tmp_path / "records" / "other_K_s0.json", record_values(cells["main_none_s0"], 300.0))
    (tmp_path / "records" / "old_s0.json").write_text("{}")
    [table] = read_tables(tmp_path, ["main"])
    [group] = read_group_records(tmp_path, ["main"])
    assert (len(table.blocks[0].lines), len(group.records), group.missing) == (2, 4, 0)
    for read in (read_tables, read_group_records):
        with pytest.raises(InputError, match="record other_K_s0: is of cell main_none_s0"):
            read(tmp_path)


# --- the paper's figures


def test_paper_column_says_whose_it_is() -> None:
    rows = {"none": "PCSR", "top1": "rectifier: top1"}
    grid = make_grid(paper={"dataset": "flickr30k", "noise": 0.6, "rows": rows})
    table = only(grid, records_of(grid, ALL))
    recalls, _ = sheets(table, table.blocks[0])
    assert recalls.header[-1] == "paper's own (Flickr30K, 0.6; not ours)"
    assert [row[-1].text for row in recalls.rows] == ["481.5 ‡", "479.6"]
    assert not any(row[-1].best for row in recalls.rows)
    found = notes(table, "x")
    assert "‡ PCSR: the paper prints 480.5, but its recalls sum to 481.5." in found
    assert any("not measured here" in note and "Table 1 / ablation: rectifier" in note for note in found)


def test_paper_row_follows_the_rows_own_ratio() -> None:
    axes = {"rectifier": RECTIFIERS, "noise.ratio": [0.2, 0.8, 0.7]}
    grid = make_grid(axes, seeds=[0], paper={"dataset": "mscoco_1k_5fold", "rows": {"none": "IN2R"}})
    lines = [line for block in only(grid, {}).blocks for line in block.lines]
    found = {line.labels: line.paper.rsum for line in lines if line.paper}
    assert found == {("none", "0.2"): 527.3, ("none", "0.8"): 501.3}
    with pytest.raises(InputError, match=r"group main.* the paper has no figure of IN3R on flickr30k"):
        only(make_grid(axes, paper={"dataset": "flickr30k", "rows": {"none": "IN3R"}}), {})
    with pytest.raises(InputError, match=r"group main.* the paper has no data set f30k; it has flickr30k"):
        only(make_grid(axes, paper={"dataset": "f30k", "rows": {"none": "IN2R"}}), {})


def test_methods_that_cannot_be_run_are_named_under_the_table_at_the_ratios_of_its_rows() -> None:
    axes = {"rectifier": RECTIFIERS, "noise.ratio": [0.4, 0.6]}
    paper = {"dataset": "flickr30k", "rows": {"none": "IN2R", "top1": "DECL"}, "quoted": ["UCPM", "NPC"]}
    grid = make_grid(axes, seeds=[0], paper=paper)
    records = {cell.name: make_record(cell, 300.0) for cell in grid.cells}
    found = notes(only(grid, records), "x")
    assert "UCPM (published, no code; TIP'25), no row here and not measured: rSum 505.0 at 0.4, 490.2 at 0.6." in found
    assert "NPC (published, on fine-tuned CLIP; AAAI'24), no row here and not measured: rSum 529.4 at 0.6." in found
    assert "The figure beside DECL is copied from another source: DECL's paper (image-level noise)." in found
    [own] = [note for note in found if note.startswith("The paper's own figures")]
    assert own.startswith("The paper's own figures (Table 1) are copied")
    assert [figure["method"] for figure in json.loads(render([only(grid, {})], "json", "x"))[0]["quoted"]] == [
        "UCPM", "UCPM", "NPC",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"group main.*the paper has no figure of UPCM on flickr30k"):
        make_grid(axes, paper={**paper, "quoted": ["UPCM"]})
    with pytest.raises(InputError, match=r"group main: `quoted` of `paper` must be a list of methods, got 'UCPM'"):
        make_grid(axes, paper={**paper, "quoted": "UCPM"})


# --- formats


def test_csv_has_a_line_per_row_and_seed() -> None:
    grid = make_grid(baseline="none")
    records = records_of(grid, {name: ALL[name] for name in ("main_top1_s0", "main_none_s0", "main_top1_s1")})
    lines = list(csv.DictReader(io.StringIO(render([only(grid, records)], "csv", "x"))))
    found = {line["cell"]: line for line in lines}
    assert list(found) == ["main_none_s0", "main_none_s1", "main_top1_s0", "main_top1_s1"]
    top1 = found["main_top1_s0"]
    assert (top1["axis rectifier"], top1["seed"], top1["finished"]) == ("top1", "0", "1")
    assert (float(top1["ensemble_rsum"]), float(top1["A_rsum"]), float(top1["B_rsum"])) == (301.0, 300.0, 302.0)
    assert float(top1["minus_baseline_ensemble"]) == 1.0
    assert float(top1["time_over_baseline"]) == 1.0
    assert (top1["noise_sha256"][:5], top1["version_torch"], top1["threads"]) == ("hash0", "2.9", "1")
    assert found["main_top1_s1"]["minus_baseline_ensemble"] == ""  # the baseline's seed 1 is open
    assert (found["main_none_s1"]["finished"], found["main_none_s1"]["ensemble_rsum"]) == ("0", "")


def test_json_has_everything() -> None:
    grid = make_grid(baseline="none", paper={"dataset": "flickr30k", "noise": 0.6, "rows": {"none": "PCSR"}})
    (table,) = json.loads(render([only(grid, records_of(grid, ALL))], "json", "the command"))
    none, top1 = table["blocks"][0]["lines"]
    assert none["runs"]["1"]["figures"][RSUM] == 310.0
    assert none["runs"]["1"]["protocol"]["noise"]["sha256"].startswith("hash1")
    assert top1["differences"][RSUM]["n"] == 2
    assert (none["paper"]["rsum"], none["paper"]["printed"]) == (481.5, 480.5)
    assert "the command" in table["notes"][0]


def test_signs_are_escaped() -> None:
    axes = {"a_b": {"50 % | λ": {"method": {"rectifier": "none"}}, "top1": {"method": {"rectifier": "top1"}}}}
    grid = make_grid(axes, title="R&D", baseline="top1", seeds=[0])
    table = only(grid, records_of(grid, dict(zip((cell.name for cell in grid.cells), (300.0, 301.0), strict=True))))
    markdown, latex = render([table], "md", "x"), render([table], "latex", "x")
    rows = [line for line in markdown.splitlines() if line.startswith("| 50 % \\| λ |")]
    assert len(rows) == 2
    assert "| a\\_b | n |" in markdown
    assert "R\\&D" in latex
    assert "50 \\% | $\\lambda$ & 1 of 1" in latex
    assert "a\\_b & n" in latex
    assert "$-$1.0 (n 1)" in latex
    assert latex.count("\\begin{tabular}") == latex.count("\\toprule") == latex.count("\\end{tabular}") == 2


def test_labels_that_begin_like_an_option_of_latex() -> None:
    axes = {"[k]": {"[1, 3]": {"method": {"rectifier": "none"}}, "*star": {"method": {"rectifier": "top1"}}}}
    grid = make_grid(axes, seeds=[0], title="* of [1]")
    records = {cell.name: make_record(cell, 300.0 + number) for number, cell in enumerate(grid.cells)}
    latex = render([only(grid, records)], "latex", "x")
    assert "\\toprule\n{}[k] & n" in latex
    assert "\\midrule\n{}[1, 3] & " in latex
    assert " \\\\\n{}*star & " in latex
    assert "\\subsection*{{}* of {}[1]}" in latex


def test_a_label_of_two_lines_stays_in_its_row() -> None:
    axes = {"a": {"top\n\none": {"method": {"rectifier": "top1"}}, "none": {}}}
    grid = make_grid(axes, seeds=[0], title="A*B*\n_C_")
    table = only(grid, records_of(grid, {"main_none_s0": 300.0}))
    markdown, latex = render([table], "md", "x"), render([table], "latex", "x")
    assert "\n### A\\*B\\* \\_C\\_\n" in f"\n{markdown}"
    assert "| top  one | 0 of 1 | - |" in markdown
    assert "\ntop  one & 0 of 1 & -" in latex


# --- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A grid folder of which three of four cells are finished."""
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid_values(baseline="none")))
    for cell in make_grid().cells:
        if cell.name != "main_top1_s1":
            write_record(tmp_path / "records" / f"{cell.name}.json", record_values(cell, ALL[cell.name]))
    return tmp_path


def test_command_prints_and_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "table", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2" in shown
    assert "+1.0 (n 1)" in shown
    assert "…" not in shown  # nothing is cut off, however narrow the terminal
    assert main(["bench", "table", str(folder), "--group", "main", "--minus", "top1", "--format", "md"]) == 0
    markdown = capsys.readouterr().out
    assert "-1.0 (n 1)" in markdown
    assert f"`in2r bench table {folder} --group main --minus top1` from 3 of 4 runs, seeds 0, 1, on birds" in markdown
    assert "2026-01-02 to 2026-01-03" in markdown
    assert "cpu, CPU threads: 1; torch 2.9" in markdown
    for suffix, begins in (
        (".md", "### main"),
        (".csv", "group,axis rectifier,"),
        (".tex", "% main"),
        (".json", "[\n"),
    ):
        file = folder / f"out{suffix}"
        assert main(["bench", "table", str(folder), "--out", str(file)]) == 0
        assert file.read_text().startswith(begins)
    assert main(["bench", "table", str(folder), "--out", str(folder / "page.txt"), "--format", "csv"]) == 0
    assert (folder / "page.txt").read_text() == (folder / "out.csv").read_text()


def test_command_says_in_one_line_that_nothing_is_measured(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = grid_values()
    values["groups"]["other"] = {"axes": {"K": {"K": {"method": {"num_neighbors": 3}}}}}
    (folder / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    assert main(["bench", "table", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\nother\nNone of 2 runs is finished yet; `in2r bench run` trains them.\n\n")
    for file in (folder / "records").iterdir():
        file.unlink()
    assert main(["bench", "table", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: no run is finished yet; `in2r bench run {folder}` trains them\n"


def test_closed_standard_output_is_no_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
    assert main(["bench", "table", str(folder), "--format", "md"]) == 0
    assert main(["bench", "table", str(folder)]) == 0
    assert main(["bench", "table", str(folder), "--out", str(folder / "out.md")]) == 0
    assert (folder / "out.md").is_file()


@pytest.mark.parametrize("form", ["md", "csv", "latex", "json"])
def test_formats_are_utf8_whatever_the_terminal(folder: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = grid_values({"λ | γ": {"none ± 1": {"method": {"rectifier": "none"}}}}, title="1 ± 1")
    (folder / "grid.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii", errors="replace"))
    arguments = ["bench", "table", str(folder), "--format", form]
    assert main(arguments) == 0
    sys.stdout.flush()
    text = printed.getvalue()
    assert ("$\\pm$" if form == "latex" else "±") in text.decode("utf-8")
    assert main([*arguments, "--out", str(folder / "out")]) == 0
    assert text == (folder / "out").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "table.xlsx"], "table.xlsx: the suffix must be one of .md, .csv, .tex, .json; or give --format"),
        (["--group", "nine"], "no group nine in the grid; groups: main\n"),
        (["--group", "mian"], "no group mian in the grid; groups: main; did you mean main?"),
        (["--minus", "nine"], "group main has no row nine"),
    ],
)
def test_command_says_what_is_wrong(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "table", str(folder), *options]) == 2
    assert said in capsys.readouterr().err


def test_command_needs_a_grid_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "table", str(tmp_path)]) == 2
    assert "not the folder of a grid (no grid.yaml); `in2r bench run` makes one" in capsys.readouterr().err

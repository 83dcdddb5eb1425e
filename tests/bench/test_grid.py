"""Grids: rows and cells from axes, seeds and presets; mistakes are named."""

from pathlib import Path
from typing import Any

import pytest

from in2r.bench.grid import cell_config
from in2r.bench.grid_file import expand, read_grid, shipped_grids
from in2r.bench.warmups import warmup_epochs, warmup_key, without_main_phase
from in2r.errors import InputError
from in2r.methods import METHODS

SETTINGS = {"preset": "in2r", "data": {"path": "somewhere"}, "noise": {"level": "caption", "ratio": 0.6}}


def grid(**more: Any) -> dict[str, Any]:
    groups = {"rows": {"axes": {"rectifier": {"none": {"method": {"rectifier": "none"}}, "all": {}}}}}
    return {"title": "a grid", "settings": SETTINGS, "groups": groups, **more}


def test_rows_are_the_product_of_the_axes_and_cells_that_of_rows_and_seeds() -> None:
    values = grid(seeds=[3, 1])
    values["groups"]["rows"]["axes"]["method.num_neighbors"] = [1, 5]
    made = expand(values)
    [group] = made.groups
    assert group.axes == ("rectifier", "method.num_neighbors")
    assert [row.labels for row in group.rows] == [("none", "1"), ("none", "5"), ("all", "1"), ("all", "5")]
    assert group.rows[2].cells == {3: "rows_all_1_s3", 1: "rows_all_1_s1"}
    assert [cell.name for cell in made.cells[:5]] == [
        "rows_none_1_s3", "rows_none_5_s3", "rows_all_1_s3", "rows_all_5_s3", "rows_none_1_s1",
    ]  # fmt: skip
    config = cell_config(made.cells[4])
    assert (config.method.rectifier, config.method.num_neighbors, config.train.seed) == ("none", 1, 1)  # type: ignore[union-attr]
    assert config.noise.ratio == 0.6
    assert made.cells[4].asked_index is None


def test_equal_settings_are_one_cell_whatever_they_are_called() -> None:
    values = grid()
    values["groups"]["again"] = {
        "priority": -1,
        "axes": {"preset": {"thrown away": {"preset": "in2r/discard"}, "K": {"method": {"num_neighbors": 3}}}},
    }
    made = expand(values)
    assert made.groups[1].rows[0].cells == {0: "rows_none_s0"}
    assert [cell.name for cell in made.cells] == ["rows_none_s0", "again_K_s0", "rows_all_s0"]  # the wanted ones first


def test_cells_differ_by_what_they_learn_and_from_which_files_and_not_by_the_device() -> None:
    rows = {
        "words": {"data": {"vocabulary": "a.json"}},
        "other words": {"data": {"vocabulary": "b.json"}},
        "threshold": {"data": {"vocabulary": "a.json"}, "partition": {"threshold": 0.6}},
        "on the CPU": {"data": {"vocabulary": "a.json"}, "train": {"device": "cpu"}},
        "checkpoints": {"data": {"vocabulary": "a.json"}, "checkpoint": {"keep": 9}},
    }
    made = expand(grid(groups={"a": {"axes": {"row": rows}}}))
    assert [row.cells[0] for row in made.groups[0].rows] == [
        "a_words_s0", "a_other-words_s0", "a_threshold_s0", "a_words_s0", "a_words_s0",
    ]  # fmt: skip


def test_each_seed_can_have_its_priority() -> None:
    values = grid(seeds=[0, 1])
    values["groups"]["rows"]["priority"] = [2, 1]
    assert [cell.seed for cell in expand(values).cells] == [1, 1, 0, 0]


def test_a_point_may_take_another_preset_and_the_base_its_settings_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(
        "settings: {preset: in2r, data: {path: x}, train: {epochs: 3}}\n"
        "groups: {a: {axes: {method: {plain: {preset: sce}, long: {train: {epochs: 9}}}}}}\n"
    )
    made = expand(read_grid(file, ["train.epochs=5", "model.dim=64"]))
    plain, long = (cell_config(cell) for cell in made.cells)
    assert (plain.method.name, plain.train.epochs, plain.model.dim) == ("sce", 5, 64)
    assert (long.method.name, long.train.epochs) == ("in2r", 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sedes": [1]}, "unknown key `sedes`; keys: title, settings, seeds"),
        ({"groups": {}}, "`groups` must name at least one group"),
        ({"groups": {"a": {"axis": {}}}}, "group a: unknown key `axis`"),
        (
            {"groups": {"a": {"axes": {"b": 3}}}},
            "group a, axis b: must hold a list of values or labelled settings, got 3",
        ),
        ({"groups": {"a": {"axes": {"b": {"c": 3}}}}}, "group a, axis b, c: settings must be keys and values, got 3"),
        ({"groups": {"a": {"axes": {"b": {"c": False}}}}}, "settings must be keys and values, got False"),
        ({"groups": {"a": {"axes": {"b": {False: {}}}}}}, "YAML reads a label as False; put it in quotes"),
        ({"groups": {"a": {"axes": {"b": {None: {}}}}}}, "YAML reads a label as None; put it in quotes"),
        ({"groups": {"a": {"axes": {"b": {1: {}, "1": {}}}}}}, "group a, axis b: 1 is there twice"),
        ({"groups": {"a": {"axes": {"method.gamma": [1, 1.0]}}}}, "axis method.gamma: 1 is there twice"),
        ({"groups": {"a": {"axes": {"b": {"c": {"train": {"seed": 3}}}}}}}, "train.seed cannot be a setting of a grid"),
        ({"settings": []}, "settings must be keys and values, got"),
        ({"settings": {**SETTINGS, "noise": 5}}, "cell rows_none_s0: .*`noise` must be a section"),
        ({"settings": {**SETTINGS, "method": 5}}, "group rows, none: configuration: `method` is 5"),
        ({"seeds": [0, 0]}, r"`seeds` must be distinct whole numbers, such as \[0, 1, 2\], got \[0, 0\]"),
        ({"seeds": 3}, "`seeds` must be distinct whole numbers"),
        ({"folds": 0}, "`folds` must be a whole number from 1, got 0"),
        ({"groups": {"a": {"axes": {"method.gama": [1]}}}}, "cell a_1_s0: .*unknown key `method.gama`.*`method.gamma`"),
        (
            {"groups": {"a": {"axes": {"x": {"y": {"preset": "papr"}}}}}},
            r"papr: neither a file nor a preset; presets: .*in2r/tuned",
        ),
        (
            {"groups": {"a": {"baseline": "z", "axes": {"x": {"y": {}}}}}},
            "`baseline` must be a point of its first axis .y., got z",
        ),
        ({"groups": {"a": {"priority": [1, 2], "axes": {"x": {"y": {}}}}}}, "`priority` must be a whole number"),
        (
            {
                "groups": {
                    "a": {"axes": {"x": {"y": {}, "y²": {"method": {"gamma": 2}}, "y2": {"method": {"gamma": 3}}}}}
                }
            },
            "two cells would be named a_y2_s0",
        ),
        (
            {"groups": {"a": {"axes": {"x": {"y": {}}}, "paper": {"dataset": "x", "noise": "y", "rows": {}}}}},
            "`noise` of `paper` must be a ratio, got 'y'",
        ),
        (
            {"groups": {"a": {"axes": {"x": {"y": {}}}, "paper": {"dataset": "flickr30k", "rows": {"z": "IN2R"}}}}},
            "`paper` names z, which is no point of the first axis",
        ),
    ],
)
def test_what_is_mistaken_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        expand(grid(**change))


def test_for_an_unknown_grid_the_known_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing: neither a file nor a grid of the package"):
        read_grid("nothing")


@pytest.mark.parametrize("name", shipped_grids())
def test_every_grid_of_the_package_can_be_run(name: str) -> None:
    made = expand(read_grid(name))
    assert made.cells
    for cell in made.cells:
        cell_config(cell)


def test_cells_that_share_a_warm_up_have_one_key() -> None:
    rows = {
        "in2r": {"method": {"warmup_epochs": 2}},
        "K": {"method": {"warmup_epochs": 2, "num_neighbors": 3}},
        "plain": {"preset": "triplet", "method": {"warmup": "sce", "warmup_epochs": 2}},
        "sce": {"preset": "sce"},
        "hardest": {"preset": "triplet"},
        "wide": {"model": {"dim": 64}},
        "none": {"method": {"warmup_epochs": 0}},
        "threshold": {"method": {"warmup_epochs": 2}, "partition": {"threshold": 0.6}},
        "hidden": {"method": {"warmup_epochs": 2}, "noise": {"hide_original": True}},
    }
    made = expand(grid(groups={"a": {"axes": {"row": rows}}}))
    keys = {cell.name: warmup_key(cell_config(cell)) for cell in made.cells}
    assert len({keys[f"a_{name}_s0"] for name in ("in2r", "K", "plain", "sce", "threshold", "hidden")}) == 1
    assert len(set(keys.values())) == 4
    assert keys["a_none_s0"] is None
    assert [warmup_epochs(cell) for cell in made.cells] == [2, 2, 2, 5, 1, 5, 0, 2, 2]


def test_cells_that_end_within_their_warm_up_are_counted() -> None:
    rows = {
        "long": {"method": {"warmup_epochs": 2}},
        "short": {},
        "thrown away": {"preset": "in2r/discard", "method": {"warmup_epochs": 7}},
        "plain": {"preset": "triplet", "method": {"warmup_epochs": 5}},
        "sce": {"preset": "sce"},
    }
    values = grid(settings={**SETTINGS, "train": {"epochs": 5}}, groups={"a": {"axes": {"row": rows}}})
    cells = expand(values).cells
    assert without_main_phase(cells) == (
        "2 of 5 cells end within their warm-up, such as a_short_s0: train.epochs=5 ends within method.warmup_epochs=5, "
        "so the pairs are never divided"
    )
    assert without_main_phase([cells[0], *cells[3:]]) == ""


def test_labels_stay_apart_and_numbers_are_what_they_were() -> None:
    labels = {"λ": {"method": {"gamma": 2}}, "γ": {"method": {"gamma": 3}}}
    values = grid(groups={"a": {"axes": {"x": labels, "method.epsilon": [0.12345671, 0.12345672]}, "baseline": "λ"}})
    made = expand(values)
    assert len({cell.name for cell in made.cells}) == 4
    assert made.groups[0].rows[0].labels == ("λ", "0.12345671")
    assert expand(grid(groups={"a": {"axes": {"method.gamma": [0.5, 1.0]}, "baseline": 1.0}})).groups[0].baseline == "1"


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("groups:\n  a: {axes: {x: {y: {}}}}\n  a: {axes: {x: {z: {}}}}\n")
    with pytest.raises(InputError, match=r"`a` stands twice.*line 3"):
        read_grid(file)


def test_an_axis_of_switches_and_of_any_text() -> None:
    axes = {"method.mask_same_image": [True, False], "method.memory_size": [None, 50], "data.path": ["😀", "a #1"]}
    grid = expand({"groups": {"a": {"axes": axes}}})
    assert [row.labels for row in grid.groups[0].rows][:3] == [
        ("true", "null", "😀"),
        ("true", "null", "a #1"),
        ("true", "50", "😀"),
    ]
    first, last = (cell_config(cell) for cell in (grid.cells[0], grid.cells[-1]))
    assert (first.method.mask_same_image, first.method.memory_size, first.data.path) == (True, None, "😀")  # type: ignore[union-attr]
    assert (last.method.mask_same_image, last.method.memory_size, last.data.path) == (False, 50, "a #1")  # type: ignore[union-attr]


def test_one_start_for_all_methods_is_two_warm_ups_for_each_seed_and_noise() -> None:
    """One for the methods with two networks, one for those with one; nobody keeps a warm-up of its own."""
    cells = expand(read_grid("same_start", ["method.common_warmup=3"])).cells
    shared: dict[tuple[Any, ...], set[str | None]] = {}
    for cell in cells:
        config = cell_config(cell)
        shared.setdefault((cell.seed, config.noise.ratio, METHODS[config.method.name].networks), set()).add(
            warmup_key(config)
        )
    assert len(shared) == 3 * 4 * 2
    assert {len(keys) for keys in shared.values()} == {1}
    assert {warmup_epochs(cell) for cell in cells} == {3}
    assert {cell_config(cell).method.name for cell in cells} == METHODS.keys() - {"corroborate"}

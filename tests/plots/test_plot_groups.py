"""Sensitivity and noise: points, means and bands by hand; what cannot be compared is refused."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.figure import Figure
from plot_records import write_grid

from in2r.bench.grid import Cell
from in2r.bench.grid_file import read_grid
from in2r.bench.groups import GroupRecords
from in2r.cli import plot
from in2r.errors import InputError
from in2r.plots.noise import draw_noise, noise_series
from in2r.plots.sensitivity import draw_sensitivity, numeric_series, scale_values
from in2r.plots.series import Series, describe_seeds
from in2r.plots.sources import read_groups

GRID: dict[str, Any] = {
    "settings": {"data": {"path": "flowers"}, "noise": {"ratio": 0.4}},
    "seeds": [0, 1],
    "groups": {
        "K": {"axes": {"method.num_neighbors": [1, 5, 20]}, "baseline": "5"},
        "gamma": {"axes": {"γ": {"0": {"method": {"gamma": 0.0}}, "0.5": {"method": {"gamma": 0.5}}}}, "seeds": [0]},
        "names": {"axes": {"method.partition_loss": ["sce", "triplet-mean"]}},
        "methods": {
            "axes": {
                "method": {"IN²R": {}, "oracle": {"noise": {"oracle": True}}},
                "noise": {"low": {"noise": {"ratio": 0.2}}, "high": {"noise": {"ratio": 0.8}}},
            },
        },
    },
}


def rsum(cell: Cell) -> float:
    """300, less 50 at 80 % noise and 10 for seed 1, plus K and 7 for an oracle."""
    noise = cell.settings["noise"]
    found = 300.0 + cell.settings.get("method", {}).get("num_neighbors", 0)
    return found - 50 * (noise["ratio"] == 0.8) - 10 * cell.seed + 7 * noise.get("oracle", False)


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    return write_grid(tmp_path / "grid", GRID, rsum)


def only(grid: Path, name: str) -> GroupRecords:
    (group,) = read_groups(grid, [name])
    return group


def sensitivity(*groups: GroupRecords) -> Figure:
    figure = Figure(layout="constrained")
    draw_sensitivity(figure, groups)
    figure.draw_without_rendering()
    return figure


def noise(group: GroupRecords) -> Figure:
    figure = Figure(layout="constrained")
    draw_noise(figure, group)
    figure.draw_without_rendering()
    return figure


def test_points_are_the_settings_values(grid: Path) -> None:
    assert numeric_series(only(grid, "K")).points == {
        1: {0: 301, 1: 291},
        5: {0: 305, 1: 295},
        20: {0: 320, 1: 310},
    }
    assert numeric_series(only(grid, "gamma")).points == {
        0: {0: 300},
        0.5: {0: 300},
    }  # of the labels: the axis is no key


def test_mean_and_deviation_by_hand() -> None:
    x, means, spread = Series("", {2: {0: 1.0, 1: 3.0}, 1: {0: 7.0}}).means()
    assert (x, means) == ([1, 2], [7, 2])
    assert spread == pytest.approx([0, math.sqrt(2)])  # n - 1 below: (1 + 1) / 1


def test_sensitivity_draws_seeds_mean_band_and_baseline(grid: Path) -> None:
    figure = sensitivity(only(grid, "K"), only(grid, "gamma"))
    axes = figure.axes[0]
    seeds, mean, baseline = axes.lines[:2], axes.lines[2], axes.lines[3]
    assert [list(line.get_ydata()) for line in seeds] == [[301, 305, 320], [291, 295, 310]]
    assert list(mean.get_ydata()) == [296, 300, 315]
    assert list(baseline.get_xdata()) == [5, 5]
    assert axes.get_title("right") == "dotted: baseline, 5"
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).y1 == pytest.approx(315 + math.sqrt(50))
    assert (axes.get_xlabel(), axes.get_xscale()) == ("neighbours K", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5", "20"]
    assert (figure.axes[1].get_xlabel(), figure.axes[1].get_xscale()) == ("γ", "linear")
    text = figure.get_supxlabel().replace("\n", " ")
    assert "test split of flowers (aaaaaaaaaaaa, 100 images, 500 captions)" in text
    assert "caption-level noise 40 %. n = 1 to 2 seeds a point" in text


def test_points_without_two_groups_of_pairs_are_open(tmp_path: Path) -> None:
    def one_group(cell: Cell) -> str:
        return {1: "AB", 5: "B" if cell.seed else ""}.get(cell.settings.get("method", {}).get("num_neighbors", 0), "")

    grid = write_grid(tmp_path / "grid", GRID, rsum, one_group)
    assert {x: str(course) for x, course in numeric_series(only(grid, "K")).one_group.items()} == {
        1: "2 of 2", 5: "0.5 of 2",
    }  # fmt: skip
    figure = sensitivity(only(grid, "K"), only(grid, "gamma"))
    (opened,) = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert (list(opened.get_xdata()), list(opened.get_ydata())) == ([1, 5], [296, 300])
    assert not [line for line in figure.axes[1].lines if line.get_markerfacecolor() == "white"]
    said = figure.get_supxlabel().replace("\n", " ")
    assert "Open: in some epochs of the main phase (K 1: 2 of 2; K 5: 0.5 of 2) the losses formed one group" in said


def test_methods_without_two_groups_of_pairs_are_open(grid: Path, tmp_path: Path) -> None:
    assert "Open" not in noise(only(grid, "methods")).get_supxlabel()
    low = write_grid(tmp_path / "low", GRID, rsum, lambda cell: "AB" * (cell.settings["noise"]["ratio"] == 0.2))
    figure = noise(only(low, "methods"))
    opened = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [(list(line.get_xdata()), line.get_marker()) for line in opened] == [([20], "o"), ([20], "s")]
    said = figure.get_supxlabel().replace("\n", " ")
    assert "the main phase (IN²R at 20 %, oracle at 20 %: 2 of 2) the losses formed one group" in said


def test_a_flat_curve_looks_flat(grid: Path, tmp_path: Path) -> None:
    flat = write_grid(
        tmp_path / "flat.yaml", GRID, lambda cell: 300 + 0.1 * cell.settings.get("method", {}).get("num_neighbors", 0)
    )
    low, high = sensitivity(only(flat, "K")).axes[0].get_ylim()
    assert (low, high) == pytest.approx((291, 311), abs=0.5)  # 300.1 to 302
    low, high = sensitivity(only(grid, "K")).axes[0].get_ylim()
    assert high - low > 29  # 291 to 320


@pytest.mark.parametrize(
    ("values", "scale"),
    [([1, 10], "linear"), ([1, 10.5], "log"), ([0, 1, 5], "linear"), ([0, 1, 50], "symlog"), ([-1, 1, 50], "linear")],
)
def test_scale_is_logarithmic_beyond_a_decade(values: list[float], scale: str) -> None:
    axes = Figure().subplots()
    axes.plot(values, values)
    scale_values(axes, values)
    assert axes.get_xscale() == scale
    assert list(axes.get_xticks()) == values


def test_sensitivity_refuses_what_has_no_place_on_a_curve(grid: Path) -> None:
    with pytest.raises(InputError, match=r"group names: sce on axis method.partition_loss is no number"):
        sensitivity(only(grid, "names"))
    with pytest.raises(InputError, match=r"group methods: axes method, noise; .* single one"):
        sensitivity(only(grid, "methods"))


def test_noise_series_by_method_in_percent(grid: Path) -> None:
    plain, oracle = noise_series(only(grid, "methods"))
    assert (plain.label, plain.uses_truth) == ("IN²R", False)
    assert plain.points == {20: {0: 300, 1: 290}, 80: {0: 250, 1: 240}}
    assert (oracle.label, oracle.uses_truth) == ("oracle", True)
    assert oracle.points == {20: {0: 307, 1: 297}, 80: {0: 257, 1: 247}}


def test_noise_draws_an_oracle_dashed(grid: Path) -> None:
    figure = noise(only(grid, "methods"))
    (axes,) = figure.axes
    means = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_linestyle() != "None"]
    assert [line.get_linestyle() for line in means] == ["-", "--"]
    assert [list(line.get_ydata()) for line in means] == [[295, 245], [302, 252]]
    assert axes.get_xlabel() == "injected noise (% of the training pairs, caption level)"
    assert "uses the truth about which pairs match" in figure.get_supxlabel()


def test_clean_data_stand_at_zero(tmp_path: Path) -> None:
    values = {
        **GRID, "settings": {"data": {"path": "flowers"}},
        "groups": {"g": {"axes": {"noise": {"clean": {}, "half": {"noise": {"ratio": 0.5}}}}}},
    }  # fmt: skip
    grid = write_grid(tmp_path / "clean", values, lambda cell: 200.0)
    (series,) = noise_series(only(grid, "g"))
    assert sorted(series.points) == [0, 50]
    noise(only(grid, "g"))


def test_noise_needs_an_axis_that_sets_the_ratio(grid: Path) -> None:
    with pytest.raises(InputError, match=r"group K: none of its axes \(method.num_neighbors\) sets the noise ratio"):
        noise(only(grid, "K"))


@pytest.mark.parametrize(
    ("finished", "ratios"), [({"m_a_20_s0", "m_b_40_s0"}, [[20], [40]]), ({"m_a_20_s0", "m_b_20_s0"}, [[20], [20]])]
)
def test_noise_axis_is_found_before_the_grid_is_finished(
    tmp_path: Path, finished: set[str], ratios: list[list[float]]
) -> None:
    axes = {
        "m": {"a": {}, "b": {"method": {"gamma": 0.5}}},
        "noise": {"20 %": {"noise": {"ratio": 0.2}}, "40 %": {"noise": {"ratio": 0.4}}},
    }
    values = {**GRID, "seeds": [0], "groups": {"m": {"axes": axes}}}
    grid = write_grid(tmp_path / "grid", values, lambda cell: 300.0 if cell.name in finished else None)
    series = noise_series(only(grid, "m"))
    assert [(line.label, list(line.points)) for line in series] == list(zip("ab", ratios, strict=True))
    noise(only(grid, "m"))


def test_noise_axis_may_name_files_that_say_their_ratio_themselves(tmp_path: Path) -> None:
    axes = {"file": {name: {"noise": {"index": f"{name}.npy"}} for name in ("few", "many")}}
    values = {"settings": {"data": {"path": "flowers"}}, "groups": {"files": {"axes": axes}}}
    described = {"level": "image", "nominal": None, "realised": 0.25, "sha256": "c" * 64}
    grid = write_grid(
        tmp_path / "grid", values, lambda cell: 300.0 if cell.name == "files_few_s0" else None, noise=described
    )
    (series,) = noise_series(only(grid, "files"))
    assert series.points == {25: {0: 300}}


def test_level_is_not_named_where_only_clean_data_are_measured(tmp_path: Path) -> None:
    axes = {"noise": {"clean": {}, "half": {"noise": {"ratio": 0.5}}}}
    values = {**GRID, "settings": {"data": {"path": "flowers"}}, "groups": {"g": {"axes": axes}}}
    grid = write_grid(tmp_path / "grid", values, lambda cell: 200.0 if "clean" in cell.name else None)
    assert noise(only(grid, "g")).axes[0].get_xlabel() == "injected noise (% of the training pairs)"


def test_two_rows_at_one_value_are_refused(tmp_path: Path) -> None:
    k = {"num_neighbors": 5}
    axes = {"method.num_neighbors": {"5": {"method": k}, "5 with gamma 2": {"method": {**k, "gamma": 2.0}}}}
    values = {**GRID, "groups": {"K": {"axes": axes}}}
    # of either row another seed: nothing is overwritten, and yet the mean would be over both
    finished = {"K_5_s0", "K_5-with-gamma-2_s1"}
    grid = write_grid(tmp_path / "grid", values, lambda cell: 300.0 if cell.name in finished else None)
    with pytest.raises(InputError, match=r"group K: rows 5 and 5 with gamma 2 both have 5; make two groups"):
        numeric_series(only(grid, "K"))


def test_two_names_of_one_row_are_one_point(tmp_path: Path) -> None:
    axes = {"method.num_neighbors": {"5": {"method": {"num_neighbors": 5}}, "default": {}}}
    grid = write_grid(tmp_path / "grid", {**GRID, "groups": {"K": {"axes": axes}}}, lambda cell: 300.0)
    assert numeric_series(only(grid, "K")).points == {5: {0: 300, 1: 300}}


def test_missing_cells_are_counted(tmp_path: Path) -> None:
    grid = write_grid(tmp_path / "grid", GRID, lambda cell: None if "K_20_s1" in cell.name else rsum(cell))
    group = only(grid, "K")
    points = numeric_series(group).points
    assert points[20] == {0: 320}
    assert describe_seeds([group], [points], "line").endswith("a thin line; not finished and not shown: 1 of the runs")
    assert describe_seeds([group], [points], "line").startswith("n = 1 to 2 seeds a point: mean, band")


@pytest.mark.parametrize(
    ("section", "changes", "fault"),
    [
        ("evaluated", {"folds": 5}, "folds 1 and 5"),
        ("evaluated", {"split": "dev"}, "split dev and test"),
        (
            "evaluated",
            {"duplicates": {"counted_as": "right", "images": 2, "captions": 0}},
            "duplicates right and wrong",
        ),
        ("data", {"fingerprint": "b"}, "fingerprint a+ and b"),
        ("noise", {"sha256": "other"}, "noise index of seed 0 .*other"),
        ("noise", {"level": "image"}, "noise level caption and image"),
    ],
)
def test_results_that_cannot_be_compared_are_refused(
    grid: Path, section: str, changes: dict[str, Any], fault: str
) -> None:
    file = grid / "records" / "K_1_s0.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values["result"]["protocol"][section] |= changes
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match=f"results that cannot be compared: {fault}"):
        sensitivity(only(grid, "K"))


def test_a_record_of_other_settings_is_refused(grid: Path) -> None:
    file = grid / "records" / "K_1_s0.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"num_neighbors": 1,', '"num_neighbors": 3,'), "utf-8")
    with pytest.raises(InputError, match=r"record K_1_s0: .*method\.num_neighbors \(3, now 1\)"):
        read_groups(grid, ["K"])


def test_a_damaged_record_is_refused(grid: Path) -> None:
    file = grid / "records" / "K_1_s0.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values["result"]["rows"]["ensemble"]["rsum"] = None
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(
        InputError, match=r"/records/K_1_s0\.json: result\.rows\.ensemble\.rsum: expected a finite number, got None"
    ):
        read_groups(grid, ["K"])


def test_forced_results_are_marked(tmp_path: Path) -> None:
    grid = write_grid(tmp_path / "grid", GRID, rsum, forced={"training": ["the data"]})
    assert "FORCED" in sensitivity(only(grid, "K")).get_supxlabel()


def test_an_empty_group_is_left_out_beside_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = write_grid(tmp_path / "grid", GRID, lambda cell: 300.0 if cell.name.startswith("K") else None)
    assert [found.group.name for found in read_groups(grid, ["gamma", "K"])] == ["K"]
    assert "no record of group gamma yet; left out" in caplog.text


def test_unknown_or_empty_groups_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the folder of a grid"):
        read_groups(tmp_path, ["K"])
    grid = write_grid(tmp_path / "grid", GRID, lambda cell: None)
    with pytest.raises(InputError, match="no group X in the grid; groups: K, gamma, names, methods"):
        read_groups(grid, ["X"])
    with pytest.raises(InputError, match="no record of group K yet"):
        read_groups(grid, ["K"])


# --- the examples of pages and help work on the grids that they name

DOCS = Path(__file__).resolve().parents[2] / "docs"


def example_grids() -> dict[str, dict[str, Any]]:
    """Folder → what its grid asks: those of the package, and the second one of the page on grids."""
    _, methods = re.findall(
        r"^```yaml\n(settings:.*?|title:.*?)^```", (DOCS / "bench.md").read_text("utf-8"), re.M | re.S
    )
    package = {"grids/sensitivity": "sensitivity", "grids/table1": "table1_flickr30k"}
    return {**{folder: read_grid(name) for folder, name in package.items()}, "grids/methods": yaml.safe_load(methods)}


def example_commands() -> list[list[str]]:
    texts = [(DOCS / name).read_text("utf-8") for name in ("plots.md", "bench.md")] + [plot.EXAMPLES]
    found = [line for text in texts for line in re.findall(r"in2r plot (?:noise|sensitivity) [^`\n]*--out \S+", text)]
    return [shlex.split(line)[2:] for line in found]


@pytest.mark.parametrize("command", example_commands(), ids=" ".join)
def test_examples_name_groups_that_can_be_drawn(command: list[str], tmp_path: Path) -> None:
    kind, folder, *options = command
    grid = write_grid(tmp_path / "grid", example_grids()[folder], lambda cell: 300.0)
    groups = [only(grid, name) for option, name in zip(options[::2], options[1::2], strict=True) if option == "--group"]
    assert groups
    if kind == "noise":
        (group,) = groups
        assert len(noise_series(group)[0].points) > 1
        noise(group)
    else:
        sensitivity(*groups)


def test_both_kinds_have_examples() -> None:
    assert {command[0] for command in example_commands()} == {"noise", "sensitivity"}
    assert len(example_commands()) == 5

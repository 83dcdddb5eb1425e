import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_run import make_data, make_noise, train

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Run the benchmark as a user would, at a toy size: its record and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "made" / "toy.json"
    command = [sys.executable, FOLDER / "run.py", "--size", "toy", "--repeat", "2", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


def test_both_versions_compute_the_same(toy):
    step, _, ranks = toy[0]["rows"]
    assert step["loss_difference"] < 1e-5
    assert step["gradient_difference"] < 1e-4
    assert ranks["ranks_equal"] is True
    assert 2 < ranks["mean_rank_t2i"] < 15  # neither all right, nor chance among 20


def test_the_record_says_what_was_measured_and_where(toy):
    record = toy[0]
    assert [row["what"] for row in record["rows"]] == [
        "training step",
        "its two batches",
        "ranks, 20 × 100",
    ]
    assert (record["size"], record["threads"], record["repeat"]) == ("toy", 1, 2)
    assert record["settings"]["batch"] == 8
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert {"torch", "numpy", "python", "in2r"} <= record["versions"].keys()
    assert record["machine"].keys() == {"cpu", "cores"}


def test_medians_and_ratios_follow_from_the_times(toy):
    for row in toy[0]["rows"]:
        for clock in (row["seconds"], row["cpu_seconds"]):
            (a, b), (c, d) = clock["ours"], clock["plain"]
            assert clock["ours_median"] == pytest.approx((a + b) / 2)
            assert clock["ratio"] == pytest.approx((c + d) / (a + b))
            assert clock["ratio_min"] == pytest.approx(min(c / a, d / b))
            assert clock["ratio_max"] == pytest.approx(max(c / a, d / b))


def test_peak_memory_is_that_of_a_process_in_megabytes(toy):
    ranks = toy[0]["rows"][2]
    assert 50 < ranks["peak_mb_before"] <= ranks["peak_mb"] < 2000


def test_the_table_shows_every_row(toy):
    record, printed = toy
    for row in record["rows"]:
        assert row["what"] in printed
        assert f"{row['seconds']['ratio']:.2f} (" in printed


def test_prototypes_are_compared_with_the_query_itself(tmp_path):
    data = make_data(tmp_path / "data")
    noisy = train(tmp_path / "noisy", data, "paper", f"noise.index={make_noise(tmp_path / 'noise.npy')}")
    command = [sys.executable, FOLDER / "prototypes.py", noisy.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows][:2] == ["the query image itself", "mean of its 5 nearest"]
    assert all(0 <= float(first) <= float(tenth) <= 100 for _, first, tenth in rows)
    plain = train(tmp_path / "plain", data, "paper")
    done = subprocess.run([*command[:2], plain.path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no noise was injected" in done.stderr

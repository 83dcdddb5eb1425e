import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_run import make_data, make_noise, train

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))  # they are scripts beside each other, as `python benchmarks/run.py` finds them
bound, gpu_check, rows_module, run, timing, workload = map(
    importlib.import_module, ("bound", "gpu_check", "rows", "run", "timing", "workload")
)
Product, SIZES = bound.Product, workload.SIZES


def call(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Run the benchmark as a user would, at a toy size: its record and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "made" / "toy.json"
    done = call(sys.executable, FOLDER / "run.py", "--size", "toy", "--repeat", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


@pytest.fixture
def rows(toy):
    return {row["what"].split(",")[0]: row for row in toy[0]["rows"]}


def test_the_record_says_what_was_measured_and_where(toy):
    record = toy[0]
    assert [row["what"] for row in record["rows"]] == [
        "training step",
        "its two batches",
        "partition pass, 100 pairs",
        "validation, 20 images",
        "ranks, 20 × 100",
        "product and ranks, 20 × 100",
        "retrieval, 1 of 100 texts",
        "retrieval, 100 of 100 texts",
        "epoch, 100 pairs, 10 steps (run whole)",
    ]
    assert (record["size"], record["threads"], record["repeat"], record["precision"]) == ("toy", 1, 2, "float32")
    assert record["settings"]["batch"] == 8
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert {"torch", "numpy", "python", "in2r"} <= record["versions"].keys()
    assert record["machine"].keys() == {"cpu", "cores", "card"}


def test_both_versions_compute_the_same(rows):
    assert rows["training step"]["loss_difference"] < 1e-5
    assert rows["training step"]["gradient_difference"] < 1e-4
    assert rows["partition pass"]["loss_difference"] < 1e-4
    assert rows["validation"]["embedding_difference"] < 1e-5
    assert rows["retrieval"]["found_equal"] is True
    assert rows["ranks"]["ranks_equal"] is True
    assert 2 < rows["ranks"]["mean_rank_t2i"] < 15  # neither all right, nor chance among 20


def test_medians_and_ratios_follow_from_the_times(toy):
    for row in toy[0]["rows"]:
        for clock in (row["seconds"], row["cpu_seconds"]):
            ours, other = clock["ours"], clock["plain"]
            # of a step five times as many turns as were asked for; an epoch of parts is none of these
            assert len(ours) == len(other) == (10 if row["what"] in ("training step", "its two batches") else 2)
            assert clock["ours_median"] == pytest.approx(np.median(ours))
            assert clock["ratio"] == pytest.approx(np.median(other) / np.median(ours))
            ratios = np.array(other) / np.array(ours)
            assert (clock["ratio_min"], clock["ratio_max"]) == pytest.approx((ratios.min(), ratios.max()))


def test_the_share_of_the_bound_is_of_our_time(toy):
    with_bound = [row for row in toy[0]["rows"] if "bound_share" in row]
    assert len(with_bound) == 7  # all but loading and the ranks of a given similarity
    for row in with_bound:
        ours = row["seconds"]["ours_median"]
        assert row["bound_share"] == pytest.approx(row["bound_seconds"] / ours)
        assert row["flop_per_second"] == pytest.approx(row["flop"] / ours)


def test_the_bound_of_an_epoch_is_that_of_its_parts(rows):
    parts = 10 * rows["training step"]["flop"] + 2 * rows["partition pass"]["flop"] + rows["validation"]["flop"]
    assert rows["epoch"]["flop"] == pytest.approx(parts)


def test_peak_memory_is_that_of_a_process_in_megabytes(rows):
    ranks = rows["product and ranks"]
    assert 50 < ranks["peak_mb_before"] <= ranks["peak_mb"] < 2000


def test_a_profile_lists_the_largest_operators():
    a = torch.ones(300, 300)
    found = timing.operators(lambda: [(a @ a).exp() for _ in range(5)], torch.device("cpu"))
    assert {entry["operator"]: entry["calls"] for entry in found["operators"]}["aten::mm"] == 5
    shares = [entry["share"] for entry in found["operators"]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1
    assert sum(shares) + found["others"] + found["outside"] == pytest.approx(1)
    printed = run.profile_table({"ours": found, "plain": found})
    assert printed.row_count == len(shares) + 2


def test_the_table_shows_every_row(toy):
    record, printed = toy
    for row in record["rows"]:
        assert row["what"] in printed
        assert f"{row['seconds']['ratio']:.2f} (" in printed


def test_an_epoch_that_is_composed_needs_its_parts(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--size", "paper", "--only", "epoch"])
    with pytest.raises(SystemExit):
        run.main()
    said = "an epoch of size paper is composed of step, partition, validation: measure them too"
    assert said in capsys.readouterr().err


def test_a_composed_epoch_is_the_sum_of_its_parts():
    size = replace(SIZES["toy"], batch=128, train=29000, scored=200)
    parts = {"step": (2.0, 20.0), "partition": (3.0, 30.0), "validation": (5.0, 50.0)}
    times = {name: {"ours_median": ours, "plain_median": other} for name, (ours, other) in parts.items()}
    done = {name: {"seconds": found, "cpu_seconds": found} for name, found in times.items()}
    steps = rows_module.epoch_steps(58_000, size.batch)
    assert steps == 2 * 454  # both networks
    found = rows_module.composed_epoch(done, size, steps)["seconds"]
    ours, other = 908 * 2 + 2 * 145 * 3 + 5, 908 * 20 + 2 * 145 * 30 + 50
    assert ours < found["ours_median"] < ours + 60  # the mixtures take their time too
    assert other < found["plain_median"] < other + 60


def test_products_of_an_image_encoder_by_hand():
    size = replace(SIZES["toy"], dim=4, region_dim=3)  # hidden 2
    found = bound.images(size, 10)
    assert found == {
        Product(10, 3, 4): 1,  # fc
        Product(4, 10, 3): 1,  # its weight; the features have no gradient
        Product(10, 3, 2): 1,  # first layer of the MLP
        Product(2, 10, 3): 1,
        Product(10, 2, 4): 1,  # second layer
        Product(4, 10, 2): 1,
        Product(10, 4, 2): 1,  # what it sends back
    }
    assert bound.flop(found) == 2 * (2 * 120 + 2 * 60 + 3 * 80)
    assert bound.flop(bound.images(size, 10, training=False)) == 2 * (120 + 60 + 80)


def test_products_of_a_recurrence_by_hand():
    """Captions of 3 and 2 tokens: two states at the second step, one at the third; D = 4, so gates of 12."""
    size = replace(SIZES["toy"], dim=4)
    lengths = torch.tensor([3, 2])
    dense = bound.linear(5, 4, 4) + bound.linear(5, 4, 2) + bound.linear(5, 2, 4)
    assert bound.texts(size, lengths) - dense == {
        Product(5, 300, 24): 1,  # both directions' input
        Product(24, 5, 300): 1,
        Product(5, 24, 300): 1,
        Product(2, 4, 12): 2,  # second step, two directions
        Product(1, 4, 12): 2,
        Product(2, 12, 4): 2,
        Product(1, 12, 4): 2,
        Product(12, 3, 4): 2,  # weight gradient: the three states that were multiplied
    }


def test_products_beside_the_encoders_by_hand():
    size = replace(SIZES["toy"], dim=4, batch=2, memory=7)
    lengths = torch.tensor([2] * 6)
    heads = bound.step(size, 6, lengths, neighbors=3) - bound.images(size, 6) - bound.texts(size, lengths)
    # search 2 × (2 × 4 × 7); refiner 12 rows, 4 → 12 without what it sends back, 4 → 4 with; similarities of 2 × 4 × 2:
    # inter, intra twice and the noisy batch with both gradients, two targets with one
    assert bound.flop(heads) == 2 * (2 * 56 + 12 * (2 * 48 + 3 * 16) + 16 * (4 * 3 + 2 * 2))


def test_the_paper_size_step_has_the_known_operations():
    """638 GFLOP at M = 65,536, 838 at 448,000, by a count of whole sets that also multiplies the zero state."""
    paper = SIZES["paper"]
    lengths = torch.full((3 * 128,), 15)
    needless = 3 * (128 * 1024 * 3072 * 2 * 2 * 3) + 2 * 2 * 640 * 1024 * 3072  # zero states; refiner's input gradient
    for memory, known in ((65536, 638), (448000, 838)):
        step = bound.flop(bound.step(replace(paper, memory=memory), 3 * 128 * 36, lengths))
        assert (step + needless) / 1e9 == pytest.approx(known, abs=1)


def test_vectors_have_no_recurrence():
    size = SIZES["vectors"]
    assert bound.texts(size, torch.ones(8)) == bound.linear(8, 384, 256, to_input=False) + bound.linear(8, 256, 512)


@pytest.mark.slow
def test_gpu_check_runs_through_on_the_cpu(tmp_path):
    out = tmp_path / "made" / "check.json"
    command = ("sh", FOLDER / "gpu_check.sh", "--device", "cpu", "--size", "toy", "--repeat", "1", "--out", out)
    done = call(*command, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    for said in ("float32: losses off by 0.0e+00", "a short training: test rSum ", "check.json: all parts passed"):
        assert said in done.stdout
    record = json.loads(out.read_text())
    assert record["correctness"]["passed"] is True
    assert set(record["correctness"]["float32"]["loss_differences"].values()) == {0.0}  # the same device twice
    assert record["training"]["epochs"][-1]["phase"] == "co-training"
    assert record["training"]["recalls"].keys() == {"A", "B", "ensemble"}
    assert record["speed"]["rows"][-1]["what"] == "epoch, 100 pairs, 10 steps (run whole)"
    assert record["speed"]["whole_epoch"]["seconds"] > 0
    assert record["speed"]["profile"].keys() == {"ours", "plain"}
    assert record["part_seconds"].keys() == {"correctness", "training", "speed"}


def test_gpu_check_goes_on_after_a_part_that_failed(tmp_path, monkeypatch, capsys):
    out = tmp_path / "check.json"

    def broken(args):
        raise RuntimeError("out of memory")

    parts = {"correctness": broken, "training": lambda args: {"passed": True}, "speed": lambda args: {"passed": False}}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu", "--size", "toy", "--out", str(out)])
    assert gpu_check.main() == 1
    record = json.loads(out.read_text())
    assert record["correctness"] == {"error": "RuntimeError: out of memory"}
    assert record["training"] == {"passed": True}
    assert "check.json: correctness, speed failed" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--budget", "-1"])
    assert gpu_check.main() == 1
    assert json.loads(out.read_text())["training"] == {"error": "left out: began after -1 s"}


def test_prototypes_are_compared_with_the_query_itself(tmp_path):
    data = make_data(tmp_path / "data")
    index = f"noise.index={make_noise(tmp_path / 'noise.npy')}"
    noisy = train(tmp_path / "noisy", data, "paper", index, "partition.single_mode=split")
    command = [sys.executable, FOLDER / "prototypes.py", noisy.path]
    done = call(*command)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows][:2] == ["the query image itself", "mean of its 5 nearest"]
    assert all(0 <= float(first) <= float(tenth) <= 100 for _, first, tenth in rows)
    plain = train(tmp_path / "plain", data, "paper")
    done = call(*command[:2], plain.path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no noise was injected" in done.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "fault"),
    [
        ("gpu_check.py", ["--device", "banana"], "expected auto, cpu, cuda"),
        ("run.py", ["--repeat", "0"], "expected a number of at least 1"),
        ("run.py", ["--out", "."], "is a folder"),
    ],
)
def test_faults_of_the_command_line_are_told_before_anything_is_measured(script, arguments, fault):
    done = subprocess.run([sys.executable, FOLDER / script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert fault in done.stderr
    assert "Traceback" not in done.stderr

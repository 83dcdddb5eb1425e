import importlib
import os
import queue
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from in2r.data.sources import open_data
from in2r.files import write_json
from in2r.training.division import observe_pairs
from tiny_run import make_data, make_noise, train

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))  # they are scripts beside each other, as `python benchmarks/run.py` finds them
gpu_check, plain, report_audit, run, toolkit, words, workload = map(
    importlib.import_module, ("gpu_check", "plain", "report_audit", "run", "toolkit", "words", "workload")
)
report_scaling, scale, scale_memory, scale_state = map(
    importlib.import_module, ("report_scaling", "scale", "scale_memory", "scale_state")
)
peers_cost, report, report_peers = map(importlib.import_module, ("peers_cost", "report", "report_peers"))
CPU = torch.device("cpu")


def call(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.fixture(scope="module", params=["toy", "toy-vectors"])
def sides(request, tmp_path_factory):
    """Toolkit and plain version with the same weights; nothing is drawn, and batch statistics are held still.

    (In training the plain version's padded rows take part in its BatchNorm, as in the field's code.)
    """
    size = workload.SIZES[request.param]
    folder = workload.make_data(tmp_path_factory.mktemp("bench") / "data", size)
    ours = toolkit.Toolkit(folder, size, CPU, *toolkit.NO_DRAWS)
    for net in ours.nets.values():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
    return ours, plain.Plain(ours)


def test_both_versions_make_the_same_step(sides):
    (losses, gradient), (expected, other) = (side.gradient() for side in sides)
    assert losses["total"] == pytest.approx(expected["total"], rel=1e-5)
    assert (gradient - other).norm() < 1e-4 * other.norm()
    assert losses["rect"] > 0  # the memories were searched


def test_both_versions_learn_the_same_from_an_epoch(sides):
    for side in sides:
        for index in range(3):
            side.step(index)
    (losses, _), (expected, _) = (side.gradient() for side in sides)
    assert losses["total"] == pytest.approx(expected["total"], rel=1e-3)


def test_both_versions_score_the_pairs_alike(sides):
    ours = sides[0]
    seen = observe_pairs(ours.trainer.method.observe, ours.nets["A"], ours.data, ours.config, "A", 0)
    for name, losses in plain.Plain(ours).losses("A").items():
        assert torch.allclose(losses, seen[name], atol=1e-4)


def test_both_versions_find_and_rank_the_same(sides):
    ours = sides[0]
    other = plain.Plain(ours)
    assert other.validate() == ours.validate()
    items = workload.embeddings(20, 16)[1]
    given = torch.arange(8), items, 10
    assert torch.equal(ours.search(*given), other.search(*given))
    v, u = workload.embeddings(50, 16)
    found, expected = ours.ranks(v, u), other.ranks(v, u)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert 1 < expected[1].mean() < 15  # neither all right, nor chance among 50


def test_both_versions_score_the_same_with_sgr(sides):
    if sides[0].config.data.caption_vectors is not None:
        pytest.skip("sgr reads words")
    given = sides[0].sgr(8)
    assert torch.allclose(toolkit.scores(*given), plain.scores(*given), atol=1e-5)


def test_turns_alternate_and_the_first_is_not_counted():
    made = []
    found = run.in_turns(lambda: made.append("a"), lambda: made.append("b"), 4, CPU)
    assert "".join(made) in ("ab" + "abba" * 2, "ab" + "baab" * 2)
    assert len(found["seconds"]["ratios"]) == len(found["cpu_seconds"]["ratios"]) == 4


def test_a_line_has_medians_and_quartiles():
    clock = {"toolkit": 0.5, "plain": 1.234, "ratios": [1.0, 2.0, 3.0, 4.0, 9.0]}
    row = {"seconds": clock, "cpu_seconds": {**clock, "ratios": [7.0]}}
    expected = "| demo | a step | 0.5 | 1.23 | 3.00 (2.00-4.00) | 7.00 (7.00-7.00) |"
    assert run.line("demo", "a step", row) == expected


def test_the_command_measures_what_was_asked_for():
    done = call(sys.executable, FOLDER / "run.py", "--size", "toy-vectors", "--turns", "1", "--only", "step", "ranks")
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[1] for line in done.stdout.splitlines() if line.startswith("| toy")]
    assert rows == ["training step", "ranks, 20 × 100"]


@pytest.mark.parametrize(
    ("module", "arguments", "fault"),
    [
        (run, ["--device", "banana"], "expected auto, cpu, cuda"),
        (run, ["--turns", "0"], "expected numbers of at least 1"),
        (gpu_check, ["--device", "banana"], "expected auto, cpu, cuda"),
    ],
)
def test_faults_of_the_command_line_are_refused(monkeypatch, capsys, module, arguments, fault):
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    with pytest.raises(SystemExit):
        module.main()
    assert fault in capsys.readouterr().err


@pytest.mark.slow
def test_gpu_check_runs_through_on_the_cpu():
    done = call("sh", FOLDER / "gpu_check.sh", "--device", "cpu", "--size", "toy", PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("losses differ by 0.0e+00", "0 of 120 ranks differ", "test rSum ", "epoch, 100 pairs", "all parts"):
        assert said in done.stdout
    assert "sgr: losses differ by at most 0.0e+00 (in2r)" in done.stdout


def test_gpu_check_runs_all_parts_though_one_fails(monkeypatch, capsys):
    def broken(size, folder, card):
        yield "so far"
        raise RuntimeError("out of memory")

    def sound(size, folder, card):
        yield "as it should be"

    monkeypatch.setattr(gpu_check, "PARTS", {"broken": broken, "sound": sound})
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu", "--size", "toy"])
    assert gpu_check.main() == 1
    said = capsys.readouterr().out
    assert "failed: RuntimeError('out of memory')" in said
    assert "as it should be" in said
    assert said.endswith("FAILED: broken\n")


def test_prototypes_are_compared_with_the_query_itself(tmp_path):
    data = make_data(tmp_path / "data")
    noise = f"noise.index={make_noise(tmp_path / 'noise.npy')}"
    noisy = train(tmp_path / "noisy", data, "in2r", noise, "partition.single_mode=split")
    command = [sys.executable, FOLDER / "prototypes.py", "--neighbors", "2", noisy.path]
    done = call(*command)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows][:2] == ["the query image itself", "mean of its 2 nearest"]
    assert all(0 <= float(first) <= float(tenth) <= 100 for _, first, tenth in rows)
    plain_run = train(tmp_path / "plain", data, "in2r")
    done = call(*command[:-1], plain_run.path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a run of in2r with injected noise" in done.stderr


@pytest.mark.parametrize("stored", [1, 5])
@pytest.mark.parametrize("captions", [1, 5])
def test_a_web_like_set_has_wrong_captions_of_absent_images(tmp_path, captions, stored):
    """Image k is k in all its values, and so are its captions' vectors: a wrong caption's number is no image's."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    for split, images in (("train", 20), ("dev", 3), ("test", 3)):
        numbers = np.arange(images, dtype=np.float32)
        np.save(source / f"{split}_ims.npy", np.tile(numbers.repeat(stored)[:, None, None], (1, 2, 3)))
        np.save(source / f"{split}_vecs.npy", np.tile(numbers.repeat(5)[:, None], (1, 4)))
        (source / f"{split}_caps.txt").write_text("".join(f'{k} a "word",\ttab\u2028\n' for k in range(5 * images)))
    asked = ["--vectors", "vecs", "--images", "8", "--captions", str(captions), "--ratio", "0.5"]
    done = call(sys.executable, FOLDER / "weblike.py", source, out, *asked)
    assert done.returncode == 0, done.stderr
    assert f"8 images, {8 * captions} captions, {4 * captions} of them wrong" in done.stdout
    images, vectors = np.load(out / "train_ims.npy")[:, 0, 0], np.load(out / "train_vecs.npy")[:, 0]
    assert len(set(images)) == 8
    wrong = vectors != images.repeat(captions)
    assert wrong.sum() == 4 * captions
    assert not set(vectors[wrong]) & set(images)
    split = open_data(out, caption_vectors="vecs").split("train")
    assert split.image_of_caption.tolist() == np.arange(8).repeat(captions).tolist()
    assert [int(text.split()[0]) // 5 for text in split.captions] == vectors.tolist()


def test_a_web_like_set_ranks_the_first_images_where_few_are_asked_for(tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    for split, images in (("train", 20), ("dev", 6), ("test", 5)):
        numbers = np.arange(images, dtype=np.float32)
        np.save(source / f"{split}_ims.npy", np.tile(numbers.repeat(5)[:, None, None], (1, 2, 3)))
        np.save(source / f"{split}_vecs.npy", np.tile(numbers.repeat(5)[:, None], (1, 4)))
        (source / f"{split}_caps.txt").write_text("".join(f"{split} {k}\u2028\n" for k in range(5 * images)))
    asked = ["--vectors", "vecs", "--images", "8", "--ratio", "0", "--ranked", "4"]
    done = call(sys.executable, FOLDER / "weblike.py", source, out, *asked)
    assert done.returncode == 0, done.stderr
    for name in ("dev", "test"):
        split = open_data(out, caption_vectors="vecs").split(name)
        assert split.images.array[split.images.rows][:, 0, 0].tolist() == [0, 1, 2, 3]
        assert split.caption_vectors.array[:, 0, 0].tolist() == np.arange(4).repeat(5).tolist()
        assert [text.split()[1] for text in split.captions] == [str(k) for k in range(20)]
    done = call(sys.executable, FOLDER / "weblike.py", source, tmp_path / "other", *asked, "--ranked", "1")
    assert "--ranked must be at least 2" in done.stderr


def test_a_web_like_set_that_asks_for_too_much_is_refused(tmp_path):
    numbers = np.zeros((4, 2, 3), np.float32)
    np.save(tmp_path / "train_ims.npy", numbers)
    np.save(tmp_path / "train_vecs.npy", np.zeros((20, 4), np.float32))
    (tmp_path / "train_caps.txt").write_text("word\n" * 20)
    asked = ["--vectors", "vecs", "--images", "3", "--ratio", "0.5"]
    done = call(sys.executable, FOLDER / "weblike.py", tmp_path, tmp_path / "out", *asked)
    assert "needs the precomp layout with dev and test; there is no dev_ims.npy" in done.stderr
    for split in ("dev", "test"):
        for name in ("ims.npy", "vecs.npy", "caps.txt"):
            (tmp_path / f"{split}_{name}").touch()
    done = call(sys.executable, FOLDER / "weblike.py", tmp_path, tmp_path / "out", *asked)
    assert done.returncode == 2
    assert "8 wrong captions, but images that are left out have 5" in done.stderr
    assert not (tmp_path / "out").exists()
    for more, said in (
        (["--ratio", "nan"], "--ratio must be in [0, 1]"),
        (["--images", "0"], "--images must be at least 2"),
        (["--images", "9"], "train has 4 images, of which --images 9 are to be kept"),
        (["--vectors", "none"], "train_none.npy"),
    ):
        done = call(sys.executable, FOLDER / "weblike.py", tmp_path, tmp_path / "out", *asked, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_one_word_of_a_kind_is_exchanged_in_a_share_of_the_captions():
    captions = ["A red dog and a blue dog run .", "two men", "nothing known here", "Black snow"] * 50
    changed, right = words.exchange_words(captions, 0.5, seed=1)
    assert (~right).sum() == 100
    assert right[2::4].all()
    for before, after, same in zip(captions, changed, right, strict=True):
        apart = [pair for pair in zip(before.split(), after.split(), strict=True) if pair[0] != pair[1]]
        assert len(apart) == (0 if same else 1)
        for old, new in apart:
            assert new in words.KIND_OF[old.lower()]
            assert new not in before.lower().split()
    assert words.exchange_words(captions, 1.0, seed=1)[1].sum() == 50  # those of no known word
    assert words.exchange_words(captions, 0.5, seed=1)[0] == changed != words.exchange_words(captions, 0.5, seed=2)[0]
    kinds = [word for kind in words.KINDS for word in kind]
    assert len(kinds) == len(set(kinds))  # no word is of two kinds


def test_seeds_of_a_setting_are_averaged_and_what_captions_are_read_by_is_not_mixed():
    keys = ("words word:0.2 seed 0", "caps_minilm near:0.2 seed 1", "caps_minilm near:0.2 seed 0")
    found = {key: {"recall": number / 10} for number, key in enumerate(keys)}
    rows = dict(report_audit.audit_rows({**found, "caps_minilm human": {}}))
    assert list(rows) == ["near, 20 %", "word, 20 %, TF-IDF"]
    assert report_audit.mean(rows["near, 20 %"], "recall") == "0.150 ± 0.071"
    assert report_audit.mean(rows["word, 20 %, TF-IDF"], "recall") == "0.000"
    assert report_audit.mean(rows["near, 20 %"], "precision") == ""


def test_a_made_run_is_measured_part_by_part(tmp_path):
    scale.make(tmp_path / "data", 1500)
    found = scale.measure(tmp_path / "data", "in2r")
    for row in report_scaling.TIMES.values():
        assert report_scaling.per_pair(found, 1500, row) > 0
    held = found["parts"]["build"]["held"]
    assert all(part["peak"] >= held for name, part in found["parts"].items() if name not in ("open", "build"))
    division = 12 * 1500  # sets, probabilities and elite pairs for two networks
    assert division < found["divisions_bytes"] < division + 8000  # names and a histogram
    memory = 2 * found["memory_entries"] * (2 * 64 * 4 + 3 * 8)
    assert found["checkpoint_bytes"] > memory


def test_the_steps_of_both_networks_are_counted_for_a_pair():
    run = {"parts": {"main: step": {"seconds": 0.064}, "observe A": {"seconds": 1.0}, "observe B": {"seconds": 2.0}}}
    assert report_scaling.per_pair(run, 10**6, ("main: step",)) == pytest.approx(1000)  # 64 ms, 128 pairs, twice
    assert report_scaling.per_pair(run, 10**6, ("observe A", "observe B")) == pytest.approx(3)
    assert report_scaling.per_pair(run, 10**6, ("divide",)) is None


def test_the_best_of_a_column_is_bold_and_its_mark_is_not():
    cells = ["200.0 w", "", "210.5 w", "198.0", "220.0"]
    assert report.mark_best(cells) == ["200.0 w", "", "**210.5** w", "198.0", "*220.0*"]
    assert report.mark_best(["1.0 ± 0.1", "2.0 ± 0.3", ""]) == ["1.0 ± 0.1", "**2.0 ± 0.3**", ""]


@pytest.mark.parametrize("made", report.REPORTS, ids=lambda made: made.folder)
def test_the_pages_of_results_show_what_the_records_say(made):
    folder = report.GridFolder(report.ROOT / "benchmarks" / "results" / made.folder)
    found = report.made_parts(made, folder, report.read_measured(folder))
    for page, parts in found.items():
        text = (report.DOCS / page).read_text(encoding="utf-8")
        for name, part in parts.items():
            shown = text.split(f"<!-- {name} -->\n")[1].split("\n<!-- end -->")[0]
            assert shown == part, f"{page}: {name}"
    if made.folder == "flickr8k":
        assert "| NCR | 60 % | 239.6 | 241.2 |" in found["methods/ncr.md"]["released"]
        assert "BiCro" not in found["methods/ncr.md"]["released"]


def test_the_page_on_scale_shows_what_the_records_say(tmp_path, monkeypatch):
    page = tmp_path / "scaling.md"
    page.write_text((FOLDER.parent / "docs" / "scaling.md").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(report_scaling, "DOCS", tmp_path)
    report_scaling.write_scaling()
    assert page.read_text(encoding="utf-8") == (FOLDER.parent / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_memory_is_measured_full(kind):
    assert scale_memory.measure(256, kind)["nearest_seconds"] > 0


def test_bytes_a_pair_are_those_that_grow():
    small, large = {"sets": 1000, "weight": 40}, {"sets": 2000, "weight": 40, "moment": 4000}
    assert scale_state.per_pair(small, large) == {"sets": 1.0}


@pytest.mark.parametrize("preset", ["triplet", "gsc"])
def test_an_epoch_of_a_method_is_timed(tmp_path, monkeypatch, preset):
    monkeypatch.setattr(peers_cost, "MAIN", 1)
    data, noise = make_data(tmp_path / "data"), make_noise(tmp_path / "noise.npy")
    for split in ("train", "dev", "test"):
        (data / f"{split}_vecs.npy").rename(data / f"{split}_caps_minilm.npy")
    took = queue.Queue()
    peers_cost.train(preset, data, noise, tmp_path / "run", took)
    found = took.get_nowait()
    assert found["seconds"] > 0
    assert found["peak_mb"] > 50


def test_costs_are_those_of_the_first_method(tmp_path, monkeypatch):
    seconds = [{"triplet": 2.0, "ncr": 3.0}, {"triplet": 4.0, "ncr": 8.0}, {"triplet": 1.0, "ncr": 1.8}]
    rounds = [{name: {"seconds": value, "peak_mb": 100 * value} for name, value in one.items()} for one in seconds]
    monkeypatch.setattr(report_peers, "COST", tmp_path / "cost.json")
    write_json(tmp_path / "cost.json", {"rounds": rounds})
    assert report_peers.cost_table().splitlines()[2:] == [
        "| `triplet` | 1.00 (1.00 to 1.00) | 200 |",
        "| `ncr` | 1.80 (1.50 to 2.00) | 300 |",
    ]

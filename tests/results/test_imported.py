"""`in2r import`: other repositories' checkpoints give the similarities of other repositories' networks."""

import json
import os
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import in2r
from in2r.cli.main import main
from in2r.data.sources import open_data
from in2r.data.text.vocabulary import Vocabulary
from in2r.files import write_json
from in2r.metrics import ranks_from_similarity, recalls_from_ranks
from in2r.models.released import read_released
from released_networks import GpoNetwork, Network, SafNetwork, ScanNetwork, SgrNetwork, VsePlusPlus, networks, save
from tiny_run import WORDS, make_data

LISTED = ["<pad>", "<start>", "<end>", "<unk>", *WORDS[1:]]
"""the field's vocabulary has no <mask>; one word of the captions is unknown"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("imported") / "data")


@pytest.fixture(scope="module")
def vocabulary(data: Path) -> Path:
    return write_vocabulary(data.parent / "released_vocab.json", LISTED)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def write_vocabulary(file: Path, words: list[str]) -> Path:
    numbers = {word: number for number, word in enumerate(words)}
    write_json(
        file, {"word2idx": numbers, "idx2word": {str(n): word for word, n in numbers.items()}, "idx": len(words)}
    )
    return file


def import_file(file: Path, data: Path, vocabulary: Path, out: Path) -> int:
    return main(
        ["import", *map(str, (file, "--data", data, "--vocabulary", vocabulary, "--out", out, "--device", "cpu"))]
    )


def items_of_test(data: Path) -> tuple[torch.Tensor, list[str], NDArray[np.int64]]:
    split = open_data(data).split("test")
    assert split.captions is not None
    return torch.from_numpy(np.load(data / "test_ims.npy")), list(split.captions), split.image_of_caption


def oracle(made: list[Network], data: Path) -> NDArray[np.float32]:
    images, captions, _ = items_of_test(data)
    tokens = Vocabulary(LISTED).encode(captions)
    return np.asarray(torch.stack([network.similarities(images, tokens) for network in made]).mean(0))


def check(out: Path, data: Path, expected: NDArray[np.float32]) -> None:
    """The model's similarities, and the recalls of `in2r eval`, are those of the released networks."""
    images, captions, owner = items_of_test(data)
    found = in2r.load(out, "cpu").score(images.numpy(), captions)
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(found, expected, atol=2e-6)
    recalls = recalls_from_ranks(*ranks_from_similarity(expected, owner))
    rows = json.loads((out / "result_test.json").read_text())["rows"]
    assert rows["ensemble"] == pytest.approx(recalls)
    assert "This project did not train them." in (out / "model" / "README.md").read_text(encoding="utf-8")
    assert main(["push", str(out), "me/mine", "--plan"]) == 0  # the card is made, with the test result


def twins(made: list[Network], *more: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {f"model_{name}": [*network.parts(), *more] for name, network in zip("AB", made, strict=False)}


def in_parallel(parts: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """Weights as DistributedDataParallel names them."""
    return [{f"module.{name}": weight for name, weight in part.items()} for part in parts]


def pc2(made: list[Any]) -> dict[str, Any]:
    return {**twins(made, {"output_layer.weight": torch.ones(2, 2)}), "optimizer_A": {"state": {}}}


SGR_FILES: dict[str, tuple[int, Callable[[list[Any]], dict[str, Any]], str]] = {
    "NCR's family": (2, twins, "opt"),
    "PC²": (2, pc2, "opt, optimizer_A, img_pro_head"),
    "L2RM": (
        1,
        lambda made: {"net": made[0].state_dict(), "cost_function": {"w": torch.ones(1)}},
        "opt, cost_function",
    ),
    "DECL": (1, lambda made: {"model": made[0].parts(), "step": 70}, "opt, step"),
    "SGRAF": (1, lambda made: {"model": in_parallel(made[0].parts()), "Eiters": 70}, "opt, Eiters"),
}
"""repository → networks, its keys of a checkpoint, what is left out"""


@pytest.mark.parametrize("repository", SGR_FILES)
def test_sgr_networks_score_as_the_released_ones(
    repository: str, data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, content, left_out = SGR_FILES[repository]
    made = networks(SgrNetwork, len(LISTED), count)
    file = save(tmp_path / "model_best.pth.tar", **content(made))
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    printed = capsys.readouterr().out
    assert repository in printed
    assert "epoch 11 as stored, dev rSum 123.4 as stored" in printed
    assert f"left out: {left_out}\n" in printed
    check(tmp_path / "run", data, oracle(made, data))
    assert main(["score", str(tmp_path / "run"), "--top", "1"]) == 0
    assert main(["eval", str(tmp_path / "run"), "--split", "dev"]) == 0
    assert "imported from model_best.pth.tar" in capsys.readouterr().out


def test_saf_networks_score_as_the_released_ones(data: Path, vocabulary: Path, tmp_path: Path) -> None:
    made = networks(SafNetwork, len(LISTED), 2)
    file = save(tmp_path / "model_best.pth.tar", **twins(made))
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    check(tmp_path / "run", data, oracle(made, data))


SCAN = {"cross_attn": "t2i", "agg_func": "LogSumExp", "lambda_lse": 6.0, "lambda_softmax": 9,
        "raw_feature_norm": "clipped_l2norm"}  # fmt: skip


def test_scan_scores_as_released_by_its_options(data: Path, vocabulary: Path, tmp_path: Path) -> None:
    made = networks(ScanNetwork, len(LISTED), 1)
    file = save(tmp_path / "model_best.pth.tar", model=made[0].parts(), opt=Namespace(**SCAN))
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    check(tmp_path / "run", data, oracle(made, data))


def test_vse_plus_plus_scores_as_released(data: Path, vocabulary: Path, tmp_path: Path) -> None:
    made = networks(VsePlusPlus, len(LISTED), 1)
    file = save(tmp_path / "model_best.pth.tar", model=made[0].parts(), Eiters=3)
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    check(tmp_path / "run", data, oracle(made, data))


def test_networks_of_in2r_s_authors_score_as_released_around_the_means_of_train(data: Path, tmp_path: Path) -> None:
    """They add <mask> to the words, and subtract a mean: here the one of train, which depends on no batch."""
    made = networks(GpoNetwork, len(LISTED) + 1)
    words = Vocabulary(LISTED)
    words.save(tmp_path / "vocab.json")  # with <mask>
    file = save(tmp_path / "model_best.pth.tar", **twins(made), opt=Namespace(avg_clean_prob=np.float64(0.9)))
    assert import_file(file, data, tmp_path / "vocab.json", tmp_path / "run") == 0
    train, sims = open_data(data).split("train"), []
    assert train.captions is not None
    for network in made:
        means = [
            v.mean(0)
            for v in network.vectors(torch.from_numpy(np.load(data / "train_ims.npy")), words.encode(train.captions))
        ]
        images, captions, _ = items_of_test(data)
        v, u = (
            torch.nn.functional.normalize(vectors - mean, dim=1)
            for vectors, mean in zip(network.vectors(images, words.encode(captions)), means, strict=True)
        )
        sims.append(v @ u.T)
    check(tmp_path / "run", data, np.asarray((sims[0] + sims[1]) / 2))


def test_an_embedding_with_a_row_for_mask_takes_the_field_s_vocabulary(
    data: Path, vocabulary: Path, tmp_path: Path
) -> None:
    """As L2RM's evaluator tries: the file's words, and one more."""
    made = networks(SgrNetwork, len(LISTED) + 1, 1)
    file = save(tmp_path / "model_best.pth.tar", net=made[0].state_dict())
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    check(tmp_path / "run", data, oracle(made, data))


def test_a_pair_table_takes_the_place_of_a_precomp_folder(data: Path, vocabulary: Path, tmp_path: Path) -> None:
    assert main(["data", "convert", str(data), str(tmp_path / "table")]) == 0
    made = networks(SgrNetwork, len(LISTED), 1)
    file = save(tmp_path / "model_best.pth.tar", net=made[0].state_dict())
    assert import_file(file, tmp_path / "table", vocabulary, tmp_path / "run") == 0
    check(tmp_path / "run", data, oracle(made, data))


# --- what is refused


@pytest.fixture
def parts() -> list[dict[str, torch.Tensor]]:
    return networks(SgrNetwork, len(LISTED), 1)[0].parts()


def refused(capsys: pytest.CaptureFixture[str], data: Path, vocabulary: Path, tmp_path: Path, file: Path) -> str:
    assert import_file(file, data, vocabulary, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not (tmp_path / "run" / "config.yaml").exists()
    return said


def change(parts: list[dict[str, Any]], at: int, name: str, value: Any) -> None:
    if value is None:
        del parts[at][name]
    else:
        parts[at][name] = value


QUERY = "SGR_module.1.graph_query_w.weight"
BROKEN: dict[str, tuple[int, str, Any, str]] = {
    "missing": (2, QUERY, None, f"network A: no sim_enc.{QUERY}"),
    "wrong shape": (2, QUERY, torch.ones(4, 5), f"sim_enc.{QUERY} has the shape (4, 5); expected (4, 4)"),
    "one direction": (
        1,
        "cap_rnn.weight_ih_l0_reverse",
        None,
        "network A: no txt_enc.cap_rnn.weight_ih_l0_reverse; found txt_enc.cap_rnn.",
    ),
    "left over": (
        1,
        "cap_rnn.weight_ih_l1",
        torch.ones(3),
        "network A: left over, no weight of the sgr backbone: txt_enc.cap_rnn.weight_ih_l1",
    ),
    "a size": (2, "sim_tranglo_w.weight", torch.ones(3), "sim_tranglo_w.weight has the shape (3,); expected 2 axes"),
    "a size of 0": (2, "sim_tranglo_w.weight", torch.ones(0, 3), "weight has the shape (0, 3); expected no 0 in it"),
    "integers": (2, QUERY, torch.ones(4, 4).int(), f"{QUERY} has the type int32; expected floating-point numbers"),
    "complex": (0, "fc.bias", torch.ones(6, dtype=torch.complex64), "has the type complex64; expected floating-point"),
    "two modules": (2, "SAF_module.bn.weight", torch.ones(1), "network A: no sim_enc.SAF_module.attn_sim_w.weight"),
    "no tensor": (0, "fc.bias", 3.5, "model_A: img_enc.fc.bias is float; expected a tensor"),
    "repeated": (0, "fc.bias", torch.zeros(1).expand(6), "model_A: img_enc.fc.bias repeats few numbers to (6,)"),
    "eight bits": (
        0,
        "fc.bias",
        torch.zeros(6).to(torch.float8_e4m3fn),
        "fc.bias has the type float8_e4m3fn; expected",
    ),
    "a name that clears the terminal": (0, "fc\x1b[2J\n", torch.ones(6), "a weight's name is 'fc\\x1b[2J\\n'"),
    "a long name": (0, "fc" * 10**5, torch.ones(6), "(its first 40 of 200000 characters), which is no name"),
    "not finite": (0, "fc.bias", torch.full((6,), torch.nan), "model_A: img_enc.fc.bias holds NaN or infinity"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_weight_that_does_not_fit_is_named(
    fault: str, parts: Any, data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, name, value, said = BROKEN[fault]
    change(parts, at, name, value)
    assert said in refused(capsys, data, vocabulary, tmp_path, save(tmp_path / "x.pth.tar", model_A=parts))


CONTENTS: dict[str, tuple[dict[str, Any], str]] = {
    "a key that clears the terminal": ({"\x1b[2J\n": 1}, "a key is '\\x1b[2J\\n' (its first 40 of 5 characters)"),
    "other keys": ({"state_dict": {}}, "keys epoch, best_rsum, opt, state_dict; expected model_A"),
    "one module": ({"model_A": [{}]}, "model_A is a list of 1; expected a list of the weights of 2, 3 or 4 modules"),
    "no list": ({"model": {"fc": torch.ones(1)}}, "model is dict; expected a list of the weights of 2 or 3 modules"),
    "SCAN, sum": (
        {"model": [{}, {}], "opt": Namespace(**SCAN | {"agg_func": "Sum"})},
        "option agg_func is Sum; expected LogSumExp or Mean",
    ),
    "SCAN without a factor": (
        {"model": [{}, {}], "opt": Namespace(**SCAN | {"lambda_lse": None})},
        "option lambda_lse is None; expected a number above 0",
    ),
    "options": ({"model_A": [{}, {}], "opt": Namespace(no_txtnorm=True)}, "option no_txtnorm=True means words"),
}


@pytest.mark.parametrize("fault", CONTENTS)
def test_another_model_is_refused_by_its_keys(
    fault: str, data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, said = CONTENTS[fault]
    assert said in refused(capsys, data, vocabulary, tmp_path, save(tmp_path / "x.pth.tar", **content))


@pytest.mark.parametrize("words", [LISTED[:-1], [*LISTED, "more", "words"]])
def test_a_vocabulary_of_another_size_is_refused(
    words: list[str], parts: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_vocabulary(tmp_path / "other.json", words[:-1] if len(words) < len(LISTED) else words)
    said = refused(capsys, data, other, tmp_path, save(tmp_path / "x.pth.tar", model_A=parts))
    assert f"txt_enc.embed.weight has {len(LISTED)} rows, but {other} has" in said


def test_features_of_another_width_or_number_are_refused(
    parts: Any, data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_data(tmp_path / "other")
    file = save(tmp_path / "x.pth.tar", model_A=parts)
    for cut, said in ((np.s_[:, :2], "2 regions an image"), (np.s_[:, :, :7], "features of 7 dimensions")):
        for split in ("train", "dev", "test"):
            np.save(other / f"{split}_ims.npy", np.load(data / f"{split}_ims.npy")[cut])
        assert f"train_ims.npy: {said}, but " in refused(capsys, other, vocabulary, tmp_path, file)


# --- nothing of the file runs


class Attack:
    """Unpickled, it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_checkpoint_does_not_run(
    zipped: bool, parts: Any, data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = tmp_path / "x.pth.tar", tmp_path / "ran"
    content = {"model_A": parts, "opt": Namespace(seed=Attack(target))}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    said = refused(capsys, data, vocabulary, tmp_path, file)
    assert "asks for posix.system" in said
    assert "nothing of it was run" in said
    assert not target.exists()
    torch.load(file, weights_only=False)  # the attack is one
    assert target.exists()


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(
    data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The memory would be filled, and the process be ended, before a size could be compared."""
    plain, bomb = save(tmp_path / "plain.pth.tar", net={"x": torch.zeros(10**6)}), tmp_path / "bomb.pth.tar"
    with zipfile.ZipFile(plain) as given, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        for record in given.infolist():
            packed.writestr(record.filename, given.read(record))
    assert "a file of torch.save is not compressed; it was not read" in refused(
        capsys, data, vocabulary, tmp_path, bomb
    )


class _Fills:
    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return bytearray, (3 << 30,)


@pytest.mark.parametrize("zipped", [True, False])
def test_bytes_by_number_are_not_made(
    data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], zipped: bool
) -> None:
    file = tmp_path / "model.pth.tar"
    torch.save({"net": _Fills()}, file, _use_new_zipfile_serialization=zipped)
    assert "asks for builtins.bytearray, which can fill the memory; it was not read" in refused(
        capsys, data, vocabulary, tmp_path, file
    )


NO_RSUM = {
    "not a number": float("nan"),
    "a truth": True,
    "above 600": 1e300,
    "below 0": -1.0,
    "no float": 10**400,
    "text": "many",
}


@pytest.mark.parametrize("stored", NO_RSUM.values(), ids=NO_RSUM)
def test_a_figure_that_is_no_rsum_is_not_given_as_one(
    stored: object, parts: list[dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    assert read_released(save(tmp_path / "file.pth.tar", model=parts, best_rsum=600.0)).best_rsum == 600
    assert read_released(save(tmp_path / "file.pth.tar", model=parts, best_rsum=stored)).best_rsum is None


def test_files_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    for content, said in (
        (b"no pickle", r"not a readable checkpoint of torch\.save \(it has no form that torch\.save writes\)"),
        (b"", "not a readable checkpoint .*empty file"),
        (None, "no such file"),
    ):
        file = tmp_path / f"{said[:3]}.pth.tar"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(in2r.InputError, match=said):
            read_released(file)
    torch.save([1], tmp_path / "list.pth.tar")
    with pytest.raises(in2r.InputError, match="holds list; expected a dictionary"):
        read_released(tmp_path / "list.pth.tar")


def test_an_imported_run_is_not_trained_on_and_not_written_over(
    data: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = networks(VsePlusPlus, len(LISTED), 1)
    file = save(tmp_path / "model_best.pth.tar", model=made[0].parts())
    assert import_file(file, data, vocabulary, tmp_path / "run") == 0
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "an imported checkpoint" in capsys.readouterr().err
    assert import_file(file, data, vocabulary, tmp_path / "run") == 2
    assert "holds a run already" in capsys.readouterr().err

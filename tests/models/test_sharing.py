"""A model goes to a hub on this machine and comes back: the library's own requests, its own cache."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import in2r
from hub_server import TOKEN, Hub, hub
from in2r.cli.main import main
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.files import read_json, write_json
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import save_model
from in2r.models.hub import is_hub_id
from in2r.models.retrieval import RetrievalModel

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'in2r[hub]'")

WORDS = Vocabulary.build(["a red dog runs", "two cats sit on a mat"], min_count=1)
CAPTIONS = ["a red cat", "two dogs run", "a mat"]
IMAGES = np.random.default_rng(0).standard_normal((4, 3, 8)).astype(np.float32)
SELECTION = {"rule": "highest dev rSum", "epoch": 2, "dev_rsum": 60.0}
ROW = {f"{way}_r{at}": 10.0 for way in ("i2t", "t2i") for at in (1, 5, 10)} | {"rsum": 60.0}
PROTOCOL = {
    "data": {
        "path": "/home/me/f30k", "fingerprint": "f" * 64, "fingerprint_in_training": "f" * 64, "encoder": None,
        "captions_as": "words", "word_vectors": None,
    },
    "noise": None, "method": "sce", "epochs": 2, "epochs_done": 2, "seed": 0, "imported": None,
    "steps_per_network": {"A": 5, "B": 5}, "selection": SELECTION,
}  # fmt: skip
EVALUATED = {
    "split": "test", "images": 10, "captions": 50, "folds": 1, "tie_rule": "-", "duplicates": {"counted_as": "wrong"},
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a folder with the parts of a run that are read here: a model, and test recalls."""
    config, inputs = ModelConfig(dim=4, word_dim=5), Inputs(8, "words", len(WORDS), 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks = {name: build_backbone(config, inputs) for name in "AB"}
    rows = {"A": ROW, "B": ROW, "ensemble": ROW}
    save_model(tmp_path / "run" / "model", networks, config, inputs, WORDS, None, {"protocol": PROTOCOL, "dev": rows})
    write_json(tmp_path / "run" / "result_test.json", {"rows": rows, "protocol": {**PROTOCOL, "evaluated": EVALUATED}})
    return tmp_path / "run"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve a hub; the library's settings, which it read from the environment when it was imported, point to it."""
    from huggingface_hub import constants

    with hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.chdir(tmp_path)
        yield running


def files(server: Hub, name: str) -> dict[str, bytes]:
    model = server.models[name]
    found: dict[str, bytes] = model["commits"][model["newest"]]
    return found


def same(one: RetrievalModel, other: RetrievalModel) -> bool:
    return np.array_equal(one.score(IMAGES, CAPTIONS), other.score(IMAGES, CAPTIONS))


def test_a_copy_is_the_same_model(run: Path, tmp_path: Path) -> None:
    model = RetrievalModel.from_pretrained(run, "cpu")
    copy = in2r.load(model.save_pretrained(tmp_path / "copy"), "cpu")
    assert same(copy, model)
    assert copy.info["protocol"]["data"]["path"] == "f30k"  # the folder it lies in is nobody's business
    assert {key: copy.info[key] for key in ("model", "inputs", "dev")} == {
        key: model.info[key] for key in ("model", "inputs", "dev")
    }
    one = in2r.load(run, "cpu", "B")
    alone = in2r.load(one.save_pretrained(tmp_path / "copy"), "cpu")  # replaces the copy
    assert same(alone, one)
    assert (alone.info["networks"], alone.info["dev"]) == (["B"], {"B": ROW})
    with pytest.raises(InputError, match="network 'A': expected ensemble, B"):
        in2r.load(tmp_path / "copy", network="A")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="mine: exists and is not a model folder"):
        model.save_pretrained(tmp_path / "mine")


def test_weights_under_their_former_name_are_read(run: Path) -> None:
    model = in2r.load(run, "cpu")
    (run / "model" / "model.safetensors").rename(run / "model" / "weights.safetensors")
    assert same(in2r.load(run, "cpu"), model)


def test_a_pushed_model_comes_back(run: Path, server: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    model = in2r.load(run, "cpu")
    address = model.push_to_hub("me/mine", licence="mit", test=read_json(run / "result_test.json"))
    assert address.startswith(f"{server.address}/me/mine/commit/")
    sent = files(server, "me/mine")
    assert sorted(sent) == ["README.md", "config.json", "model.safetensors", "vocabulary.json"]
    assert b"/home/me" not in b"".join(sent.values())
    assert "split: test" in sent["README.md"].decode()
    assert server.models["me/mine"]["private"] is False
    assert same(in2r.load("me/mine", "cpu"), model)
    first = server.models["me/mine"]["newest"]
    in2r.load(run, "cpu", "B").push_to_hub("me/mine")
    assert in2r.load("me/mine", "cpu").dim == 4
    assert same(in2r.load("me/mine", "cpu", revision=first), model)
    example = sent["README.md"].decode().split("```")[1].removeprefix("python")
    capsys.readouterr()
    exec(example, {})
    assert capsys.readouterr().out == "(2, 2)\n"


@pytest.mark.parametrize(
    ("name", "hub_id"),
    [
        *[(name, True) for name in ("me/mine", "my-team/f30k.v2_1")],
        *[
            (name, False)
            for name in ("./me/mine", "/me/mine", "me/mine/model", "mine", "../mine", "me/", "a b/c", "~/x")
        ],
        ("me/mine\n", False),
    ],
)
def test_owner_and_name_are_told_from_paths(name: str, hub_id: bool) -> None:
    assert is_hub_id(name) is hub_id


def test_only_what_a_model_needs_is_fetched(run: Path, server: Hub) -> None:
    in2r.load(run, "cpu").push_to_hub("me/mine")
    server.put("me/mine", {"train.py": b"import os", "huge.bin": b"0" * 1000})
    server.requests.clear()
    in2r.load("me/mine", "cpu")
    got = {line.rpartition("/")[2] for line in server.requests if line.startswith("GET /me/mine/resolve")}
    assert got == {"config.json", "model.safetensors", "vocabulary.json"}


def test_a_folder_of_that_name_wins(run: Path, server: Hub) -> None:
    in2r.load(run, "cpu").push_to_hub("me/mine")
    one = in2r.load(run, "cpu", "A")
    one.save_pretrained("me/mine")
    server.requests.clear()
    assert same(in2r.load("me/mine", "cpu"), one)
    assert server.requests == []
    with pytest.raises(InputError, match=r"me/mine: `revision` is of a model on a hub \(owner/name\)"):
        in2r.load("me/mine", revision="main")
    Path("me/mine/config.json").unlink()
    with pytest.raises(InputError, match=r"no config.json here.*; it was taken for a path because it exists here"):
        in2r.load("me/mine")


def test_what_the_hub_does_not_have_is_one_line(run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    in2r.load(run, "cpu").push_to_hub("me/mine", private=True)
    with pytest.raises(InputError, match=r"^me/other: no such folder; http://\S+ has no model of this name that you"):
        in2r.load("me/other")
    with pytest.raises(InputError, match=r"^me/mine: no such folder; no such revision on the hub"):
        in2r.load("me/mine", revision="v2")
    server.put("me/strange", {"pytorch_model.bin": b"x"})
    with pytest.raises(InputError, match=r"^me/strange: a model on the hub, but none of in2r's \(no config\.json\)"):
        in2r.load("me/strange")
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(InputError, match=r"^me/mine: no such folder; http"):
        in2r.load("me/mine")  # private
    with pytest.raises(InputError, match=r"^me/new: .*401.*; `hf auth login` or HF_TOKEN says who you are"):
        in2r.load(run, "cpu").push_to_hub("me/new")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'no such folder; to look for it on a hub, install .*"in2r\[hub\]"'):
        in2r.load("me/mine")


def test_what_was_to_be_private_is_not_sent_to_a_public_model(run: Path, server: Hub) -> None:
    server.put("me/mine", {"a.txt": b"a"})
    with pytest.raises(InputError, match="me/mine: on the hub already, for everybody to read; nothing was sent"):
        in2r.load(run, "cpu").push_to_hub("me/mine", private=True)
    assert files(server, "me/mine") == {"a.txt": b"a"}


def test_a_plan_asks_nobody(run: Path, server: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(run), "me/mine", "--plan"]) == 0
    out = capsys.readouterr().out
    assert server.requests == []
    size = (run / "model" / "model.safetensors").stat().st_size
    assert f"model.safetensors  {size:,} bytes" in out
    assert 'in2r.load("me/mine")' in out
    assert "no licence: nobody else may use the model" in out
    assert "split: test" in out
    assert main(["push", str(run), "me", "--plan"]) == 2
    assert "in2r: me: expected owner/name" in capsys.readouterr().err
    assert main(["push", "you/mine", "me/mine", "--plan"]) == 2
    assert "in2r: you/mine: no such folder" in capsys.readouterr().err


def test_a_text_of_ones_own_becomes_the_card(run: Path, server: Hub, tmp_path: Path) -> None:
    (tmp_path / "own.md").write_text("# Mine\n", encoding="utf-8")
    command = ["push", str(run), "me/mine", "--licence", "mit", "--card", str(tmp_path / "own.md")]
    assert main(command) == 0
    card = files(server, "me/mine")["README.md"].decode()
    assert card.startswith("---\nlibrary_name: in2r\n")
    assert card.endswith("---\n# Mine\n")
    (tmp_path / "own.md").write_text("---\nlicense: mit\n---\n# Mine\n", encoding="utf-8")
    assert main(command) == 0
    assert files(server, "me/mine")["README.md"] == (tmp_path / "own.md").read_bytes()


def test_a_result_of_another_epoch_is_refused(run: Path, server: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_json(run / "result_test.json")
    result["protocol"]["selection"] = {**SELECTION, "epoch": 1}
    write_json(run / "result_test.json", result)
    assert main(["push", str(run), "me/mine"]) == 2
    assert "the test result is of epoch 1, the model of epoch 2; `in2r eval RUN`" in capsys.readouterr().err
    with pytest.raises(InputError, match="`test`: expected the content of a result file"):
        in2r.load(run, "cpu").push_to_hub("me/mine", test={"rows": {}})
    config = read_json(run / "model" / "config.json")
    del config["protocol"]["method"]
    write_json(run / "model" / "config.json", config)
    with pytest.raises(InputError, match=r"config\.json of the model: no card can be made of it, .*'method'"):
        in2r.load(run, "cpu").push_to_hub("me/mine")
    assert server.requests == []


def test_a_fetched_model_is_read_without_a_network(run: Path, server: Hub, tmp_path: Path) -> None:
    """Read in a process that knows nothing but the environment."""
    in2r.load(run, "cpu").push_to_hub("me/mine")
    in2r.load("me/mine", "cpu")
    server.requests.clear()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "cache")}
    script = "import in2r; print(in2r.load('me/mine', 'cpu').dim); in2r.load('me/other')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env={**environment, "HF_ENDPOINT": server.address}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.stdout == "8\n", done.stderr
    assert "me/other: no such folder; not in the hub's cache either, and the hub is not reached" in done.stderr
    assert server.requests == []

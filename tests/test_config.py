"""Settings: every fault in one line, with the nearest valid key; presets; what overrides what."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from in2r.config import deciding, to_dict
from in2r.errors import InputError
from in2r.methods import METHODS, PartitionConfig, method_names
from in2r.methods.in2r import In2rConfig
from in2r.methods.plain import SceConfig, TripletConfig
from in2r.runs.presets import presets, read_preset
from in2r.runs.settings import RunConfig, load_config, resolve
from in2r.settings_text import merge, parse_overrides, read_yaml

NAMES = f"one of {', '.join(method_names())}, or file.py:Class"


def fault(**sections: object) -> str:
    with pytest.raises(InputError) as error:
        load_config(None, **sections)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"train": {"epoch": 3}}, "unknown key `train.epoch`; did you mean `train.epochs`?"),
        ({"trian": {}}, "unknown key `trian`; did you mean `train`?"),
        ({"method": {"lambda_inter": 1}}, "unknown key `method.lambda_inter`; did you mean `method.lambda_intra`?"),
        ({"checkpoint": {"zzz": 1}}, "unknown key `checkpoint.zzz`; valid keys: every_steps, keep"),
        ({"train": {"epochs": "many"}}, "`train.epochs` must be a whole number, got 'many'"),
        ({"train": {"epochs": 2.0}}, "`train.epochs` must be a whole number, got 2.0"),
        ({"train": {"epochs": True}}, "`train.epochs` must be a whole number, got True"),
        ({"train": {"epochs": 0}}, "`train.epochs` must be at least 1, got 0"),
        ({"train": {"threads": "all"}}, "`train.threads` must be a whole number or null, got 'all'"),
        ({"train": {"learning_rate": 0}}, "`train.learning_rate` must be greater than 0, got 0.0"),
        ({"train": {"learning_rate": "fast"}}, "`train.learning_rate` must be a number, got 'fast'"),
        ({"train": {"learning_rate": "nan"}}, "`train.learning_rate` must be a finite number, got nan"),
        ({"train": {"threads": 100_000}}, "`train.threads` must be in [1, 1024], got 100000"),
        ({"train": {"order": "random"}}, "`train.order` must be one of interleaved, alternating, got 'random'"),
        ({"checkpoint": 5}, "`checkpoint` must be a section with keys (every_steps, keep, warmups), got 5"),
        ({"train": None}, "`train` must be a section with keys (seed, epochs, "),
        ({"epochs": 3}, "unknown key `epochs`; did you mean `train.epochs`?"),
        ({"train": {"ratio": 0.4}}, "unknown key `train.ratio`; did you mean `noise.ratio`?"),
        ({"epoch": 3}, "unknown key `epoch`; did you mean `train.epochs`?"),
        ({"data": {"seed": 1}}, "unknown key `data.seed`; did you mean `data.split_seed` or `train.seed`?"),
        ({"gamma": 1}, "unknown key `gamma`; did you mean `method.gamma`?"),
        ({"method": {"name": "sce"}, "gamma": 1}, "unknown key `gamma`; valid keys: data, "),
        ({"warmup_epochs": 1}, "unknown key `warmup_epochs`; did you mean `method.warmup_epochs`?"),
        ({"noise": {"ratio": 60}}, "`noise.ratio` must be in [0, 1], got 60.0"),
        ({"noise": {"level": "pair"}}, "`noise.level` must be one of caption, image or null, got 'pair'"),
        ({"noise": {"oracle": "yes"}}, "`noise.oracle` must be true or false, got 'yes'"),
        ({"model": {"center": 1}}, "`model.center` must be true or false, got 1"),
        ({"data": {"path": 5}}, "`data.path` must be text, got 5"),
        ({"method": {"name": "nobody"}}, f"`method.name` must be {NAMES}, got 'nobody'"),
        ({"method": {"name": "triplet", "gamma": 1}}, "unknown key `method.gamma`; valid keys: "),
        ({"method": {"name": ["in2r"]}}, f"`method.name` must be {NAMES}, got "),
    ],
)
def test_a_fault_is_named_with_what_was_expected(sections: dict[str, object], said: str) -> None:
    assert said in fault(**sections)


def test_a_wrong_name_is_one_fault() -> None:
    assert fault(method={"name": "tripl"}).count("method.name") == 1


@pytest.mark.parametrize(
    ("first", "second"), [("method=triplet", "method.warmup_epochs=0"), ("train=5", "train={seed: 1}")]
)
def test_no_section_silently_replaces_a_value(first: str, second: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(first.replace("=", ": "), encoding="utf-8")
    name = first.partition("=")[0]
    for source, overrides in ((None, [first, second]), (file, [second])):
        with pytest.raises(InputError, match=f"`{name}` is .*, so there can be no {name}.(warmup_epochs|seed)"):
            load_config(source, overrides)


def test_an_empty_section_of_a_file_can_be_filled(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("train:\n", encoding="utf-8")
    assert load_config(tmp_path / "mine.yaml", ["train.seed=3"]).train.seed == 3


def test_all_faults_come_at_once() -> None:
    message = fault(train={"epoch": 3, "batch_size": 1}, model={"dim": "big"}, method={"name": "x"})
    for part in ("train.epoch`", "train.batch_size` must be at least 2", "model.dim`", "method.name`"):
        assert part in message
    assert message.startswith("configuration: ")


def test_numbers_as_people_write_them() -> None:
    """YAML 1.1 reads 5e-4 as text, and 1 for 1.0 is no mistake."""
    config = load_config(None, ["train.learning_rate=5e-4", "method.gamma=2"])
    assert config.train.learning_rate == 0.0005
    assert isinstance(config.method, In2rConfig)
    assert config.method.gamma == 2.0
    assert isinstance(config.method.gamma, float)


@pytest.mark.parametrize("text", ["010", "-010", "00", "1:30", "-1:30:05", "0x10", "0b11", "0o17", "1:30.5"])
def test_numbers_are_decimal_or_refused(text: str, tmp_path: Path) -> None:
    """YAML 1.1 reads 010 as 8 and 1:30 as 90."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"train: {{seed: {text}}}\ndata: {{path: {text}}}\n", encoding="utf-8")
    said = f"`train.seed` must be a whole number, got '{text}'"
    for source, overrides in ((None, [f"train.seed={text}"]), (None, [f"train={{seed: {text}}}"]), (file, [])):
        with pytest.raises(InputError, match=re.escape(said)):
            load_config(source, overrides)
    assert load_config(file, ["train.seed=1"]).data.path == text


def test_a_number_with_a_fraction_is_decimal_or_refused() -> None:
    assert load_config(None, ["train.gradient_clip=010"]).train.gradient_clip == 10.0
    for text in ("1:30", "1:30.5", "0x10"):
        assert f"`train.gradient_clip` must be a number, got '{text}'" in fault(
            **parse_overrides([f"train.gradient_clip={text}"])
        )


def test_decimal_numbers_dates_and_texts_survive_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("a: [0, -7, +7, 1_000, 010.5, .5, 1.5e+3, .inf, 2024-01-31]\n", encoding="utf-8")
    assert read_yaml(file) == {"a": [0, -7, 7, 1000, 10.5, 0.5, 1500.0, float("inf"), "2024-01-31"]}
    assert parse_overrides(["a=2024-01-31"]) == {"a": "2024-01-31"}
    texts = ["010", "08", "1:30", "-.5", "1e3", "5e-4", "0x10", "1_0", "2024-01-31", "no", "~"]
    file.write_text(yaml.safe_dump({"a": texts}), encoding="utf-8")
    assert read_yaml(file) == {"a": texts}


def test_optional_choices_take_their_choices_and_null() -> None:
    assert load_config(None, ["noise.level=image", "noise.index=x.npy"]).noise.level == "image"
    assert load_config(None, ["noise.level=null"]).noise.level is None


def test_the_methods_name_chooses_its_section() -> None:
    assert isinstance(load_config(None, ["method.name=triplet", "method.margin=0.1"]).method, TripletConfig)
    assert isinstance(load_config(None, ["method.name=sce"]).method, SceConfig)


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_survives_its_own_file(name: str) -> None:
    config = load_config(f"in2r+{name}" if name.startswith("recipe/") else name)
    assert resolve(to_dict(config)) == config


def test_a_recipe_alone_names_no_method() -> None:
    with pytest.raises(InputError, match=r"^recipe/softmax: names no method; put it after one, .*\+recipe/softmax$"):
        load_config("recipe/softmax")


PRINTED = {
    "model": {"dim": 1024, "word_dim": 300, "image_dropout": 0.3, "text_dropout": 0.3, "center": False},
    "method": {
        "name": "in2r",
        "warmup_epochs": 5,
        "ce_weight": 1.0,  # α
        "rce_weight": 1.0,  # β
        "epsilon": 1e-7,
        "warmup_temperature": 0.05,  # τ
        "partition_loss": "sce",
        "rectification_temperature": 0.05,
        "margin": 0.2,  # m
        "intra_margin": 0.2,
        "lambda_intra": 0.5,  # its headline row
        "gamma": 1.0,  # γ
        "num_neighbors": 5,  # K
        "rectifier": "refiner",
        "refiner": "mhsa",
        "refiner_heads": 4,
        "refiner_sharing": "shared",
        "rectification": "soft-target",
        "candidates": "noisy",
        "memory_source": "peer",
        "memory_elite": True,
        "memory_limit": 65536,  # M on Flickr30K, of 145,000 pairs
        "memory_share": 0.45,
        "memory_unique": False,
        "memory_exclude_self": False,
    },
    "partition": {"threshold": 0.5},
    "train": {
        "epochs": 45,  # 5 + 40
        "batch_size": 128,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "learning_rate": 5e-4,
        "schedule": "cosine",
        "schedule_from": "start",
        "gradient_clip": 2.0,
        "region_drop": 0.2,
        "word_drop": 0.2,
        "initial_weights": "copy",
        "order": "interleaved",
    },
    "noise": {"index": None, "oracle": False, "hide_original": False},
}
"""What the paper prints; where it is silent or contradicts itself, what docs/methods/in2r.md settles."""
RELEASED = {
    "model": {"center": True},
    "method": {
        "warmup_epochs": 1,
        "warmup_views": True,
        "partition_loss": "triplet-mean",
        "lambda_intra": 1.0,
        "intra_margin": 0.3,
        "refiner_sharing": "per-direction",
        "rectification": "prototype-contrast",
        "memory_size": 65536,
        "memory_prefill": False,
    },
    "partition": {
        "augmented": True,
        "minimum_noisy_share": 0.01,
        "single_mode": "split",
        "max_iter": 10,
        "tol": 1e-2,
        "reg_covar": 5e-4,
    },
    "train": {
        "epochs": 41,  # 1 + 40
        "optimizer": "adamw",
        "weight_decay": 1e-4,
        "schedule": "step",
        "step_epochs": 15,
        "step_factor": 0.1,
        "order": "alternating",
    },
}
"""Where the authors' code differs from what they print, and what it says that they do not."""


@pytest.mark.parametrize(("preset", "stated"), [("in2r", PRINTED), ("in2r/released", merge(PRINTED, RELEASED))])
def test_a_preset_is_what_was_published(preset: str, stated: dict[str, dict[str, object]]) -> None:
    found = to_dict(load_config(preset))
    assert {section: {name: found[section][name] for name in values} for section, values in stated.items()} == stated


def test_presets_differ_from_the_defaults_in_what_they_say() -> None:
    in2r = ["in2r", "in2r/discard", "in2r/released", "in2r/tuned"]
    decl = ["decl", "decl/coco", "decl/flickr30k"]
    sps = ["sps", "sps/coco", "sps/flickr30k"]
    peers = ["gsc", "gsc/coco", "gsc/flickr30k"]
    for name in ("l2rm", "ncr"):
        peers += [name, f"{name}/cc152k", f"{name}/coco", f"{name}/flickr30k", f"{name}/released"]
    for name in ("esc", "pc2", "pcsr"):
        peers += [name, f"{name}/flickr30k", f"{name}/released"]
    peers += ["gscplus", "gscplus/cc152k", "gscplus/coco", "gscplus/flickr30k", "gscplus/released"]
    peers += ["bicro", "bicro/flickr30k", "bicro/released", "cream", "cream/coco", "cream/flickr30k"]
    assert presets() == sorted(["corroborate", *decl, *in2r, *peers, *sps, "recipe/softmax", "sce", "triplet"])
    paper = load_config("in2r")
    assert paper == RunConfig()
    assert load_config("in2r/tuned") == replace(paper, method=In2rConfig(partition_loss="auto"))
    assert load_config("in2r/discard") == replace(paper, method=In2rConfig(rectifier="none"))
    assert load_config("triplet") == replace(paper, method=TripletConfig())
    assert load_config("sce") == replace(paper, method=SceConfig())
    assert to_dict(load_config("in2r/released")) == merge(to_dict(paper), RELEASED)


SCHEDULES = {
    "ncr/flickr30k": (5, 40, 30, {}),
    "ncr/coco": (10, 20, 10, {}),
    "ncr/cc152k": (10, 40, 30, {}),
    "ncr/released": (5, 40, 30, {"margins": "released"}),
    "l2rm/flickr30k": (5, 35, 15, {}),
    "l2rm/coco": (10, 20, 10, {"regularisation": 0.07}),
    "l2rm/cc152k": (10, 40, 20, {"regularisation": 0.07, "mask_given": False}),
    "l2rm/released": (5, 35, 15, {"clean_component": "lowest_loss"}),
    "esc/flickr30k": (10, 40, 30, {}),
    "esc/released": (10, 40, 30, {"margins": "released"}),
    "bicro/flickr30k": (10, 40, 30, {}),
    "bicro/released": (10, 40, 30, {"margins": "released", "clean_labels": "released"}),
    "pc2/flickr30k": (5, 50, 30, {}),
    "pcsr/flickr30k": (5, 50, 30, {}),
}
"""preset → epochs of warm-up, of the main phase, after how many of these the step shrinks, what else the method has"""


@pytest.mark.parametrize("preset", SCHEDULES)
def test_a_preset_has_the_published_schedule_and_nothing_else(preset: str) -> None:
    warmup, main, step, of_method = SCHEDULES[preset]
    name = preset.partition("/")[0]
    share = {} if name == "l2rm" else {"minimum_noisy_share": 0.01}
    alone = {} if name == "l2rm" else {"initial_weights": "independent", "order": "alternating"}
    assert to_dict(load_config(preset)) == merge(
        to_dict(load_config(name)),
        {
            "method": {"warmup_epochs": warmup, **of_method},
            "partition": share,
            "train": {
                "epochs": warmup + main,
                "learning_rate": 2e-4,
                "schedule": "step",
                "schedule_from": "main",
                "step_epochs": step,
                **alone,
            },
        },
    )


PSEUDO = {"margins": "released", "positions": 36, "entropy_of": "pair", "bank_mode": "released"}


@pytest.mark.parametrize(
    ("name", "of_method"),
    [
        ("pc2", {**PSEUDO, "detach_pseudo_label": False}),
        ("pcsr", {**PSEUDO, "ambiguous_borrow": True, "votes": 2}),
        ("gscplus", {"text_relation": "place"}),
    ],
)
def test_what_the_public_code_computes_with_sgr(name: str, of_method: dict[str, Any]) -> None:
    assert to_dict(load_config(f"{name}/released")) == merge(
        to_dict(load_config(f"{name}/flickr30k")),
        {"model": {"backbone": "sgr"}, "method": of_method, "train": {"region_drop": 0.0, "word_drop": 0.0}},
    )


@pytest.mark.parametrize("name", ["ncr", "l2rm"])
def test_the_schedule_of_other_data_is_laid_on_what_the_public_code_computes(name: str) -> None:
    own = replace(load_config(f"{name}/coco").method, **SCHEDULES[f"{name}/released"][3])
    assert load_config(f"{name}/released+{name}/coco") == replace(load_config(f"{name}/coco"), method=own)
    assert load_config(f"{name}/coco+{name}/released") == load_config(f"{name}/released")


FOLLOWED = ("ncr", "l2rm", "bicro", "cream", "esc", "sps", "pc2", "pcsr")
"""methods that follow their two components always, as they were published"""


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_preset_of_its_name_with_its_defaults(name: str) -> None:
    plain, found = replace(RunConfig(), method=METHODS[name].Config()), load_config(name)
    if name in FOLLOWED:
        plain = replace(plain, partition=PartitionConfig(single_mode="split"))
    assert found.method == plain.method
    assert found == plain or name == "corroborate"  # it is given in the recipe that it was measured with


def test_presets_are_laid_on_each_other_and_the_last_one_decides() -> None:
    recipe = read_preset("recipe/softmax")
    found = to_dict(load_config("in2r/discard+recipe/softmax"))
    assert found == merge(to_dict(load_config("in2r/discard")), recipe)
    assert read_preset("corroborate") == merge(
        recipe,
        {
            "model": {"dim": 512},
            "method": {"name": "corroborate"},
            "partition": {"max_iter": 100, "tol": 1e-3},
            "train": {"epochs": 34},
        },
    )
    assert load_config("recipe/softmax+in2r/released").train.learning_rate == recipe["train"]["learning_rate"]
    assert load_config("recipe/softmax+in2r/released").train.order == "alternating"
    with pytest.raises(InputError, match=r"recipe/soft: neither .*did you mean recipe/softmax"):
        load_config("in2r+recipe/soft")
    for name in ("in2r+", "+in2r", "in2r++recipe/softmax"):
        with pytest.raises(InputError, match=rf"^{re.escape(name)}: expected presets on both sides"):
            load_config(name)


def test_a_recipe_replaces_another_schedule() -> None:
    found = load_config("ncr/flickr30k+recipe/softmax").train
    assert (found.schedule, found.schedule_per, found.schedule_from) == ("cosine", "step", "phase")


OWN_METHOD = """
from in2r.methods.base import Method

class Own(Method):
    def steps(self, net, peer, batches, now):
        yield from ()
"""


def test_a_plus_in_the_path_of_a_methods_file_is_the_paths_own(tmp_path: Path) -> None:
    file = tmp_path / "a+b" / "own.py"
    file.parent.mkdir()
    file.write_text(OWN_METHOD)
    assert load_config(f"{file}:Own").method.name == f"{file}:Own"
    assert load_config(f"{file}:Own").loss.kind == "hinge"
    assert read_preset(f"{file.parent / 'own.py'}:Own") == {"method": {"name": f"{file}:Own"}}


def test_every_key_says_what_it_means() -> None:
    config = load_config("in2r")
    for method in METHODS.values():
        assert all(entry.metadata["help"] for entry in fields(method.Config()))
    for section in fields(config):
        assert all(entry.metadata["help"] for entry in fields(getattr(config, section.name)))


def test_later_settings_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("preset: in2r/released\ntrain: {epochs: 7, seed: 1}\n", encoding="utf-8")
    config = load_config(file, ["train.seed=3", "train.seed=4"], train={"seed": 2, "batch_size": 16})
    assert config.train.optimizer == "adamw"  # the preset's
    assert config.train.epochs == 7  # the file's
    assert config.train.batch_size == 16  # the section's
    assert config.train.seed == 4  # the last override


def test_an_unknown_preset_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for value in ("in3r", "5", str(file)):
        file.write_text(f"preset: {value}\n", encoding="utf-8")
        with pytest.raises(InputError, match=f"{file}: .*{value}.*presets: .*in2r, in2r/discard"):
            load_config(file)


def test_neither_file_nor_preset() -> None:
    with pytest.raises(
        InputError, match=r"in3r: neither a file nor a preset; presets: .*in2r, in2r/discard.*mean in2r\?"
    ):
        load_config("in3r")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", "not valid YAML .*line 2"),
        ("- 1\n", "expected keys and values, found list"),
        ("\xe9", "not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
        ("a: !!float x\n", "not valid YAML"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=f"{file}: {said}") as error:
        load_config(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_key(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "mine.yaml").write_text("train: {seed: 3}", encoding=encoding)
    assert read_yaml(tmp_path / "mine.yaml") == {"train": {"seed": 3}}


def test_reading_yaml_from_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        read_yaml(tmp_path)
    (tmp_path / "empty.yaml").touch()
    assert load_config(tmp_path / "empty.yaml") == RunConfig()


def test_overrides() -> None:
    texts = ["data.path=data #2", "noise.index=2024", "data.vocabulary=[x]", "data.word_vectors='my: file'"]
    assert parse_overrides([*texts, "checkpoint.warmups=null", "train.device=no", "train.seed=3"], RunConfig) == {
        "data": {"path": "data #2", "vocabulary": "[x]", "word_vectors": "my: file"},
        "noise": {"index": "2024"},
        "checkpoint": {"warmups": None},
        "train": {"device": "no", "seed": 3},
    }
    assert parse_overrides(["a.b=1", "a.c=[x, y]", "d=text", "e="]) == {
        "a": {"b": 1, "c": ["x", "y"]},
        "d": "text",
        "e": None,
    }
    with pytest.raises(InputError, match=r"`data.path`: 'a.udcff' is not UTF-8; give the folder or file another name"):
        parse_overrides(["data.path=a\udcff"], RunConfig)
    for wrong in ("train.seed", "=1", "a=[1", "a={b: 1, b: 2}", "a=!!float x"):
        with pytest.raises(InputError, match=r"`.*`: "):
            parse_overrides([wrong])


def test_merge_leaves_its_inputs_alone() -> None:
    base = {"a": {"b": 1, "c": 2}}
    assert merge(base, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    assert base == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.dim=10"], r"`model.dim` \(10\) must be a multiple of `method.refiner_heads` \(4\)"),
        (["method.memory_size=4"], r"`method.memory_size` \(4\) must be at least `method.num_neighbors` \(5\)"),
        (["noise.oracle=true"], "`noise.oracle` needs a `noise.index`"),
        (["noise.ratio=0.4"], r"`noise.ratio` \(0\.4\) is declared without a `noise.index`"),
        (["noise.level=image"], r"`noise.level` \(image\) is declared without a `noise.index`, so nothing"),
        (
            ["train.weight_decay=1e-4"],
            r"`train.weight_decay` \(0\.0001\) is for `train.optimizer=adamw`; adam has none",
        ),
        (["model.gpo_position_dim=31"], r"`model.gpo_position_dim` \(31\) must be even"),
        (
            ["method.name=l2rm", "train.batch_of=images"],
            r"`train.captions_per_image` \(3\) must be 1 for l2rm, which needs batches of one size",
        ),
        (
            ["method.name=sps", "partition.threshold=0.7"],
            r"`method.strict_threshold` \(0\.6\) must be at least `partition.threshold` \(0\.7\)",
        ),
        (["method.name=corroborate"], "corroborate needs `loss.kind=softmax`, got hinge"),
        (
            ["method.name=corroborate", "loss.kind=softmax", "model.backbone=sgr", "train.region_drop=0"],
            "corroborate compares vectors, and model.backbone=sgr makes none",
        ),
        (["train.learning_rate=1e38"], "`train.learning_rate` must be at most 1e\\+30"),
    ],
)
def test_settings_that_contradict_each_other(overrides: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_config(None, overrides)


def test_settings_that_only_seem_to_contradict_each_other() -> None:
    assert load_config(None, ["noise.level=caption", "noise.ratio=0"]).noise.index is None
    assert load_config(None, ["train.optimizer=adamw", "train.weight_decay=0.1"]).train.weight_decay == 0.1


def test_a_dimension_without_refiner_need_not_be_divisible() -> None:
    assert load_config("in2r/discard", ["model.dim=10"]).model.dim == 10
    assert load_config("triplet", ["model.dim=10"]).model.dim == 10


def test_a_key_decides_what_its_section_says_unless_it_says_otherwise() -> None:
    config = load_config("in2r")
    kinds = ("learning", "main phase", "place", "computing", "keeping")
    found = {kind: set(deciding(config, kind)) for kind in kinds}  # type: ignore[arg-type]
    every = [f"{section}.{name}" for section, values in to_dict(config).items() for name in values]
    assert sorted(name for names in found.values() for name in names) == sorted(every)
    assert found["place"] == {"data.path", "data.leave_out", "data.vocabulary", "data.word_vectors", "noise.index"}
    assert found["computing"] == {"data.residency", "train.device", "train.threads"}
    assert found["keeping"] == {name for name in every if name.startswith(("checkpoint.", "record."))}
    of_the_main_phase = {name for name in every if name.startswith(("method.", "partition.", "loss."))}
    assert found["main phase"] == of_the_main_phase | {"noise.hide_original"}
    assert deciding(config, "keeping")["checkpoint.keep"] == config.checkpoint.keep


def test_a_method_of_ones_own_file_brings_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        """
from dataclasses import dataclass
from in2r.config import key
from in2r.methods import Method, MethodConfig

@dataclass(frozen=True)
class MineConfig(MethodConfig):
    weight: float = key(2.0, "how much", above=0)

class Mine(Method):
    Config = MineConfig
    def steps(self, net, peer, batches, now):
        yield from ()
""",
        encoding="utf-8",
    )
    name = f"{file}:Mine"
    config = load_config(name, ["method.weight=3"])
    assert to_dict(config)["method"] == {"name": name, "common_warmup": None, "weight": 3.0}
    assert resolve(to_dict(config)) == config
    with pytest.raises(InputError, match=r"`method\.weight` must be greater than 0, got 0"):
        load_config(name, ["method.weight=0"])
    with pytest.raises(InputError, match=r"unknown key `method\.gamma`; valid keys: name, common_warmup, weight"):
        load_config(None, [f"method.name={name}", "method.gamma=1"])


def test_a_preset_is_not_hidden_by_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sce").write_text("method: {name: triplet}\n")
    assert load_config("sce", ["data.path=d"]).method.name == "sce"
    assert load_config("./sce", ["data.path=d"]).method.name == "triplet"

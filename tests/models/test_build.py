"""The backbone that section `model` asks for; contradictions; GPO's weights as ever."""

import pytest
import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.models.base import Backbone
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.dual import DualEncoder
from in2r.models.saf import Saf
from in2r.models.scan import Scan
from in2r.models.sgr import Sgr
from in2r.runs.settings import load_config

WORDS = Inputs(6, "words", 20, regions=4)
VECTORS = Inputs(6, "vectors", 9, regions=4)
SMALL = {"dim": 8, "word_dim": 5}


def build(inputs: Inputs = WORDS, seed: int = 0, matrix: Tensor | None = None, **keys: object) -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_backbone(ModelConfig(**SMALL, **keys), inputs, matrix)  # type: ignore[arg-type]


def test_gpo_draws_the_weights_it_always_drew() -> None:
    """The last weights drawn are those of the words: any other order or number of draws before would change them."""
    model = build()
    first = {
        "image.fc.weight": [0.121991, -0.507557, -0.453731],
        "image.gpool.linear.weight": [-0.135462, 0.101171, -0.030853],
        "text.cap_rnn.bias_hh_l0_reverse": [0.291875, -0.335864, -0.080666],
    }
    for name, values in first.items():
        assert model.get_parameter(name).flatten()[:3].tolist() == pytest.approx(values, abs=1e-6)
    assert model.get_parameter("text.embed.weight")[1, :3].tolist() == pytest.approx(
        [0.081444, -0.051366, -0.081169], abs=1e-6
    )


@pytest.mark.parametrize("backbone", ["gpo", "vsepp", "sgr", "saf", "scan"])
def test_every_backbone_encodes_and_scores(backbone: str) -> None:
    model = build(backbone=backbone)
    assert isinstance(model, {"sgr": Sgr, "saf": Saf, "scan": Scan}.get(backbone, DualEncoder))
    assert model.interacts == (backbone in ("sgr", "saf", "scan"))
    assert model.bounded == (backbone in ("sgr", "saf"))
    assert model.embeds == (backbone != "scan")
    images = model.eval().encode_images(torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0)))
    texts = model.encode_texts(torch.arange(4, 16).view(2, 6))
    score = model.score(images, texts)
    assert score.shape == (3, 2)
    assert score.std() > 1e-4
    for items in (images, texts):
        torch.testing.assert_close(items.vector.norm(dim=1), torch.ones(len(items)))


def test_keys_reach_the_backbone() -> None:
    model = build(backbone="sgr", sgr_dim=3, sgr_steps=2, attention_smoothing=4.0, attention_dropout=0.1)
    assert isinstance(model, Sgr)
    assert (model.similarity_dim, len(model.steps), model.smoothing) == (3, 2, 4.0)
    assert (model.image.regions, model.image.attention.dropout.p, model.text.attention.dropout.p) == (4, 0.1, 0.1)
    assert (model.image.dropout.p, model.text.dropout.p) == (0.3, 0.3)
    saf = build(backbone="saf", sgr_dim=3, attention_smoothing=4.0, attention_dropout=0.1)
    assert isinstance(saf, Saf)
    assert (saf.similarity_dim, saf.smoothing, saf.image.attention.dropout.p) == (3, 4.0, 0.1)
    scan = build(backbone="scan", scan_direction="i2t", scan_pooling="mean", scan_lse=5.0, attention_smoothing=4.0)
    assert isinstance(scan, Scan)
    assert (scan.direction, scan.pooling, scan.lse, scan.smoothing) == ("i2t", "mean", 5.0, 4.0)
    assert scan.image.attention is scan.text.attention is None
    matrix = torch.ones(20, 5)
    for backbone in ("gpo", "vsepp", "sgr", "saf", "scan"):
        assert torch.equal(build(backbone=backbone, matrix=matrix).get_parameter("text.embed.weight"), matrix)
        with pytest.raises(InputError, match="word vectors: expected words × dim = 20×5, found 19×5"):
            build(backbone=backbone, matrix=torch.ones(19, 5))


@pytest.mark.parametrize(
    ("inputs", "keys", "said"),
    [
        (VECTORS, {}, "needs captions as words, the data gives one vector per caption: attention over one word"),
        (WORDS, {"image": "linear"}, r"contradicts model\.image=linear \(expected regions\)$"),
        (
            VECTORS,
            {"image": "mlp", "text": "linear", "center": True},
            r"contradicts model\.image=mlp \(.*\), model\.text=linear \(.*\), model\.center=true \(",
        ),
        (Inputs(6, "words", 20), {}, "needs several regions per image, found an unknown number of regions"),
        (Inputs(6, "words", 20, regions=1), {}, "needs several regions per image, found 1 region;"),
    ],
)
@pytest.mark.parametrize("backbone", ["sgr", "saf", "scan"])
def test_what_an_interaction_backbone_cannot_use_is_refused_in_one_line(
    backbone: str, inputs: Inputs, keys: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=f"^model.backbone={backbone} .*{said}") as error:
        build(inputs, backbone=backbone, **keys)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("backbone", ["sgr", "saf"])
def test_settings_refuse_what_contradicts_sgr(backbone: str) -> None:
    sgr = {"backbone": backbone}
    with pytest.raises(InputError, match=rf"`train\.region_drop` \(0\.2\) must be 0 for model\.backbone={backbone}"):
        load_config(None, model=sgr)
    with pytest.raises(InputError, match=rf"model\.backbone={backbone} .* contradicts model\.image=linear"):
        load_config(None, model={**sgr, "image": "linear"})
    assert load_config(None, model=sgr, train={"region_drop": 0}).model.backbone == backbone


# --- VSE++


def vsepp(pooling: str = "mean", dropout: float = 0.0) -> DualEncoder:
    model = build(backbone="vsepp", vsepp_words=pooling, image_dropout=dropout, text_dropout=dropout)
    assert isinstance(model, DualEncoder)
    return model.eval()


def test_an_image_is_the_mean_of_its_projected_regions() -> None:
    model = vsepp()
    values = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 4, [True, False, True, False], [True, False, False, False]])
    found = model.encode_images(values, mask).vector
    for row, regions, real in zip(found, values, mask, strict=True):
        mean = torch.stack([model.image.projection(region) for region in regions[real]]).mean(0)
        torch.testing.assert_close(row, mean / mean.norm())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_caption_is_the_mean_of_its_states_or_the_last(pooling: str, training: bool) -> None:
    model = vsepp(pooling).train(training)
    lengths = [3, 5, 1, 5]
    ids = torch.randint(4, 20, (4, 5), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = model.encode_texts(ids * mask, mask).vector
    assert model.text.cap_rnn.bidirectional == (pooling == "mean")
    for row, words, length in zip(found, ids, lengths, strict=True):
        states = model.text.cap_rnn(model.text.embed(words[:length])[None])[0][0]
        expected = (states[:, :8] + states[:, 8:]).mean(0) / 2 if pooling == "mean" else states[-1]
        torch.testing.assert_close(row, expected / expected.norm())
        torch.testing.assert_close(model.encode_texts(words[None, :length]).vector[0], row)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_caption_of_no_word_is_zero_with_a_finite_gradient(pooling: str) -> None:
    model = vsepp(pooling, dropout=0.3).train()
    mask = torch.tensor([[True, True], [False, False], [True, False]])
    vectors = model.encode_texts(torch.tensor([[4, 5], [0, 0], [6, 0]]), mask).vector
    assert (vectors.norm(dim=1) > 0.5).tolist() == [True, False, True]
    vectors.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.text.parameters())
    assert model.text.cap_rnn.weight_hh_l0.grad.any()

from pathlib import Path

import numpy as np
import pytest
import torch

from in2r.layers.mlp import Centering, unit_norm
from in2r.layers.pooling import GPO, MeanPool
from in2r.models.dual import DualEncoder
from in2r.models.encoders import RegionEncoder, VectorEncoder, WordEncoder

REFERENCE = {k: torch.from_numpy(v) for k, v in np.load(Path(__file__).parents[1] / "arrays" / "encoders.npz").items()}
LOOSE = {"rtol": 1e-5, "atol": 1e-6}


def parameters(part):
    prefix = f"{part}.param."
    unused = f"{prefix}mlp.bns.1"  # created but never applied in the reference
    return {k[len(prefix) :]: v for k, v in REFERENCE.items() if k.startswith(prefix) and not k.startswith(unused)}


def leading(lengths, entries):
    return torch.arange(entries) < lengths[:, None]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def region_encoder():
    encoder = RegionEncoder(40, 32, 16)
    encoder.load_state_dict(parameters("image_encoder"))
    return encoder.eval()


@pytest.fixture
def word_encoder():
    encoder = WordEncoder(50, 20, 32, 16)
    encoder.load_state_dict(parameters("text_encoder"))
    return encoder.eval()


def vector_encoder():
    torch.manual_seed(0)
    return VectorEncoder(40, 32, hidden=16).eval()


REGIONS = REFERENCE["image_encoder.in.regions"]
REGION_MASK = leading(REFERENCE["image_encoder.in.lengths"], 7)
WORDS = REFERENCE["text_encoder.in.token_ids"]
WORD_MASK = leading(REFERENCE["text_encoder.in.lengths"], 8)


@pytest.fixture(params=["regions", "words", "vectors"])
def case(request, region_encoder, word_encoder):
    """An encoder in evaluation mode with a batch for it."""
    return {
        "regions": (region_encoder, REGIONS, REGION_MASK),
        "words": (word_encoder, WORDS, WORD_MASK),
        "vectors": (vector_encoder(), REGIONS, REGION_MASK),
    }[request.param]


def test_region_encoder_equals_the_reference(region_encoder):
    embedding = region_encoder(REGIONS, REGION_MASK)
    torch.testing.assert_close(embedding, REFERENCE["image_encoder.out.embedding"], **LOOSE)


def test_word_encoder_equals_the_reference(word_encoder):
    embedding = word_encoder(WORDS, WORD_MASK)
    torch.testing.assert_close(embedding, REFERENCE["text_encoder.out.embedding"], **LOOSE)


def test_embeddings_have_unit_norm(case):
    encoder, values, mask = case
    for training in (True, False):
        norms = encoder.train(training)(values, mask).norm(dim=1)
        torch.testing.assert_close(norms, torch.ones(len(values)), **LOOSE)


def test_an_embedding_is_the_same_alone_in_a_batch_and_in_any_order(case):
    encoder, values, mask = case
    together = encoder(values, mask)
    order = torch.randperm(len(values), generator=generator())
    torch.testing.assert_close(encoder(values[order], mask[order]), together[order], **LOOSE)
    for i in range(len(values)):
        keep = mask[i]
        torch.testing.assert_close(encoder(values[i : i + 1, keep])[0], together[i], **LOOSE)
        torch.testing.assert_close(encoder(values[i : i + 1], mask[i : i + 1])[0], together[i], **LOOSE)


@pytest.mark.parametrize("training", [True, False])
def test_padding_has_no_influence(case, training):
    encoder, values, mask = case
    encoder.train(training)
    other = torch.full_like(values, 49 if values.dtype == torch.int64 else torch.nan)
    other = torch.where(mask if values.ndim == 2 else mask[..., None], values, other)
    results = []
    for batch in (values, other):
        torch.manual_seed(3)
        results.append(encoder(batch, mask))
    assert torch.equal(*results)


@pytest.mark.parametrize("make", [lambda: RegionEncoder(40, 32, 16), vector_encoder])
def test_regions_may_be_masked_anywhere(make):
    torch.manual_seed(0)
    encoder = make().eval()
    mask = torch.rand(6, 7, generator=generator(2)) < 0.6
    mask[:, 3] = True
    embeddings = encoder(REGIONS, mask)
    for row, keep, embedding in zip(REGIONS, mask, embeddings, strict=True):
        torch.testing.assert_close(encoder(row[keep][None])[0], embedding, **LOOSE)


def test_batch_norm_sees_valid_rows_only(region_encoder):
    region_encoder.train().dropout.p = 0.0
    norm = region_encoder.mlp.bns[0]
    norm.momentum = 1.0
    region_encoder(REGIONS, REGION_MASK)
    rows = region_encoder.mlp.layers[0](REGIONS[REGION_MASK])
    torch.testing.assert_close(norm.running_mean, rows.mean(0), **LOOSE)
    torch.testing.assert_close(norm.running_var, rows.var(0), **LOOSE)


def test_one_region_per_image(region_encoder):
    single = REGIONS[:, :1]
    rows = single[:, 0]
    expected = unit_norm(region_encoder.fc(rows) + region_encoder.mlp(rows))
    torch.testing.assert_close(region_encoder(single), expected, **LOOSE)


@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, dtype=torch.bool)])
def test_a_single_row_can_be_trained_on(mask):
    encoder = RegionEncoder(40, 32, 16)
    before = encoder.mlp.bns[0].running_mean.clone()
    embedding = encoder(REGIONS[:1, :1], mask)
    embedding[0, 0].backward()
    assert embedding.isfinite().all()
    assert torch.equal(encoder.mlp.bns[0].running_mean, before)


def test_two_passes_differ_by_dropout_in_training_only(case):
    encoder, values, mask = case
    assert torch.equal(encoder(values, mask), encoder(values, mask))
    encoder.train()
    first, second = encoder(values, mask), encoder(values, mask)
    assert (first - second).abs().amax(1).min() > 1e-4
    encoder.dropout.p = 0.0
    torch.testing.assert_close(encoder(values, mask), encoder(values, mask))


def test_gradients_are_finite_and_reach_every_parameter(case):
    encoder, values, mask = case
    target = torch.randn(len(values), 32, generator=generator())
    (encoder.train()(values, mask) * target).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.ne(0).any(), name


def test_initial_values():
    encoder = WordEncoder(30, 20, 32, 16)
    words = encoder.embed.weight
    assert words[0].eq(0).all()
    assert 0.09 < words.abs().max() <= 0.1
    bound = (6 / 64) ** 0.5
    assert 0.9 * bound < encoder.fc.weight.abs().max() <= bound
    assert encoder.fc.bias.eq(0).all()
    assert encoder.mlp.layers[0].out_features == 16


def test_pretrained_word_vectors():
    vectors = torch.randn(30, 20, generator=generator())
    assert torch.equal(WordEncoder(30, 20, 32, 16, pretrained=vectors).embed.weight, vectors)
    with pytest.raises(ValueError, match="word vectors: expected words × dim = 30×20, found 29×20"):
        WordEncoder(30, 20, 32, 16, pretrained=vectors[1:])


def test_gpo_arguments_are_passed_on():
    encoder = RegionEncoder(40, 32, 16, pool=lambda: GPO(position_dim=8, temperature=0.5))
    assert encoder.gpool.gru.input_size == 8
    assert encoder.gpool.temperature == 0.5


def test_the_mean_is_taken_over_the_valid_regions_alone():
    values, mask = torch.randn(3, 4, 40, generator=generator()), torch.ones(3, 4, dtype=torch.bool)
    mask[0, 1:] = mask[1, 0] = False
    encoder = RegionEncoder(40, 32, 16, pool=MeanPool).eval()
    found = encoder(values, mask)
    for image, regions in zip(range(3), ([0], [1, 2, 3], [0, 1, 2, 3]), strict=True):
        rows = values[image, regions]
        projected = encoder.fc(rows) + encoder.mlp(rows, [len(rows)])
        torch.testing.assert_close(found[image], unit_norm(projected.mean(0)))


def test_vector_encoder_by_hand():
    encoder = VectorEncoder(2, 2).eval()
    with torch.no_grad():
        encoder.projection.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    values = torch.tensor([[[1.0, 4.0], [5.0, 0.0]], [[3.0, 2.0], [9.0, 9.0]]])
    embeddings = encoder(values, torch.tensor([[True, True], [True, False]]))
    torch.testing.assert_close(embeddings, torch.tensor([[0.6, 0.8], [0.6, 0.8]]))  # both means are (3, 2)
    torch.testing.assert_close(encoder(values)[0], torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 1e4])
def test_unit_norm_is_finite_at_any_scale(dtype, scale):
    vectors = torch.tensor([[3.0, 4.0]], dtype=dtype).mul(scale).requires_grad_()
    units = unit_norm(vectors)
    units.sum().backward()
    assert vectors.grad.isfinite().all()
    expected = torch.tensor([[0.6, 0.8]]) if scale else torch.zeros(1, 2)
    torch.testing.assert_close(units.float(), expected, rtol=1e-3, atol=1e-3)


def dual(center=False):
    torch.manual_seed(0)
    return DualEncoder(VectorEncoder(40, 32), WordEncoder(50, 20, 32, 16), center=center)


def test_dual_encoder_uses_each_side_for_its_own():
    model = dual().eval()
    assert torch.equal(model.encode_images(REGIONS, REGION_MASK).vector, model.image(REGIONS, REGION_MASK))
    assert torch.equal(model.encode_texts(WORDS, WORD_MASK).vector, model.text(WORDS, WORD_MASK))


def test_dual_encoder_refuses_two_dimensions():
    with pytest.raises(ValueError, match="image embeddings have 32 dimensions, text embeddings 16"):
        DualEncoder(VectorEncoder(40, 32), VectorEncoder(40, 16))


def test_centering_subtracts_the_batch_mean_in_training():
    centering = Centering(2)
    embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    half = 0.5**0.5
    torch.testing.assert_close(centering(embeddings), torch.tensor([[half, -half], [-half, half]]))
    torch.testing.assert_close(centering.running_mean, torch.tensor([0.05, 0.05]))  # a tenth of the way
    alone = centering(embeddings[:1])  # its own mean would leave nothing
    torch.testing.assert_close(alone, unit_norm(torch.tensor([[0.95, -0.05]])))
    torch.testing.assert_close(centering.running_mean, torch.tensor([0.05, 0.05]))


def test_centred_embeddings_do_not_depend_on_the_batch_in_evaluation():
    model = dual(center=True)
    for _ in range(3):
        model.encode_images(REGIONS, REGION_MASK)
        model.encode_texts(WORDS, WORD_MASK)
    model.eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for encode, values, mask in [
        (model.encode_images, REGIONS, REGION_MASK),
        (model.encode_texts, WORDS, WORD_MASK),
    ]:
        together = encode(values, mask)
        for i in range(len(values)):
            torch.testing.assert_close(
                encode(values[i : i + 1], mask[i : i + 1]).vector[0], together.vector[i], **LOOSE
            )
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    plain = unit_norm(model.image(REGIONS, REGION_MASK) - model.image_center.running_mean)
    torch.testing.assert_close(model.encode_images(REGIONS, REGION_MASK).vector, plain)
    assert model.text_center.running_mean.ne(0).all()

"""Encoders as ONNX graphs, written operator by operator.

PyTorch's exporter traces a module. Ours cannot be traced: they sort in NumPy, plan their recurrences on the host and
have gradients of their own. So each encoder's equation is written once more here, for evaluation, in ONNX's operators;
`tests/models/test_onnx.py` compares both.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from in2r.layers.mlp import MLP, Centering
from in2r.layers.pooling import GPO, LOWEST
from in2r.models.encoders import RegionEncoder, VectorEncoder, WordEncoder
from in2r.models.vsepp import PlainWordEncoder

SMALLEST = np.float32(1e-9)
"""of a squared norm, as in `unit_norm`"""


class Graph:
    """Nodes and weights of one graph, in the order in which they were added; every value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, value: Any) -> str:
        """Add a constant and return its name; float64 becomes float32."""
        from onnx import numpy_helper

        array = np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output and return its name."""
        return self.add_several(operator, 1, *inputs, **attributes)[0]

    def add_several(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node of several outputs and return their names; an empty input is one that is left out."""
        from onnx import helper

        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names


# --- parts; names of values in, the name of the result out


def unit_norm(graph: Graph, vectors: str) -> str:
    """Add x / sqrt(max(|x|², 1e-9)) over the last axis."""
    squared = graph.add("ReduceSumSquare", vectors, axes=[-1], keepdims=1)
    return graph.add("Div", vectors, graph.add("Sqrt", graph.add("Max", squared, graph.weight(SMALLEST))))


def linear(graph: Graph, rows: str, layer: nn.Linear) -> str:
    """Add x Wᵀ + b over the last axis."""
    product = graph.add("MatMul", rows, graph.weight(layer.weight.T))
    return product if layer.bias is None else graph.add("Add", product, graph.weight(layer.bias))


def mlp(graph: Graph, rows: str, layers: MLP) -> str:
    """Add W2 relu(s (W1 x + b1) + t) + b2: BatchNorm by its running statistics is a scale s and a shift t."""
    norm = layers.bns[0]
    mean, variance, scale, shift = (
        _double(value) for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    scale = scale / np.sqrt(variance + float(norm.eps))  # type: ignore[arg-type]
    hidden = linear(graph, rows, layers.layers[0])  # type: ignore[arg-type]
    normed = graph.add("Add", graph.add("Mul", hidden, graph.weight(scale)), graph.weight(shift - mean * scale))
    return linear(graph, graph.add("Relu", normed), layers.layers[1])  # type: ignore[arg-type]


def sizes(graph: Graph, mask: str) -> str:
    """Count how many places of each row of a mask (B, K) are taken, as (B, 1) int64."""
    return graph.add("ReduceSum", graph.add("Cast", mask, to=_INT64), graph.weight(np.array([1])), keepdims=1)


def masked_mean(graph: Graph, values: str, mask: str) -> str:
    """Add the mean (B, d) over the valid places of (B, K, d); zero where there is none."""
    filled = _where(graph, mask, values, 0.0)
    count = graph.add("Max", graph.add("Cast", sizes(graph, mask), to=_FLOAT), graph.weight(np.float32(1)))
    return graph.add("Div", graph.add("ReduceSum", filled, graph.weight(np.array([1])), keepdims=0), count)


def gru(graph: Graph, layer: nn.GRU, values: str, lengths: str) -> list[str]:
    """Add a GRU: the states (T, directions, B, H) of sequences (T, B, in), and the last (directions, B, H).

    A state beyond its sequence's length, (B,) int32, is zero.
    """
    directions = ("", "_reverse") if layer.bidirectional else ("",)

    def weights(*names: str) -> str:
        each = [np.concatenate([_onnx_gates(layer, name + which) for name in names]) for which in directions]
        return graph.weight(np.stack(each))

    given = weights("weight_ih_l0"), weights("weight_hh_l0"), weights("bias_ih_l0", "bias_hh_l0")
    kind = "bidirectional" if layer.bidirectional else "forward"
    sizes = {"hidden_size": layer.hidden_size, "direction": kind, "linear_before_reset": 1}
    return graph.add_several("GRU", 2, values, *given, lengths, **sizes)


def bi_gru(graph: Graph, layer: nn.GRU, values: str, lengths: str) -> str:
    """Add the mean (T, B, H) of both directions' states."""
    return graph.add("ReduceMean", gru(graph, layer, values, lengths)[0], axes=[1], keepdims=0)


def gpo(graph: Graph, values: str, mask: str, pool: GPO) -> str:
    """Add Σ_k θ_k · (k-th largest valid entry) of each feature; θ as in `GPO`, from the size of each set."""
    count, places = sizes(graph, mask), _length(graph, values, 1)
    code = _position_code(graph, places, pool.position_dim)
    batch = _length(graph, values, 0)
    shape = graph.add("Concat", places, batch, graph.weight(np.array([pool.position_dim])), axis=0)
    codes = graph.add("Expand", graph.add("Unsqueeze", code, graph.weight(np.array([1]))), shape)
    length = _flat(graph, graph.add("Max", count, graph.weight(np.array(1))))
    states = bi_gru(graph, pool.gru, codes, graph.add("Cast", length, to=_INT32))
    score = linear(graph, states, pool.linear)
    score = graph.add("Div", _by_item(graph, _squeezed(graph, score, 2)), graph.weight(np.float32(pool.temperature)))
    within = graph.add("Less", _range(graph, places), count)
    weights = graph.add("Softmax", _where_flat(graph, within, score, LOWEST), axis=-1)
    ordered, _ = graph.add_several("TopK", 2, _where(graph, mask, values, LOWEST), places, axis=1)
    weights = graph.add("Unsqueeze", weights, graph.weight(np.array([1])))
    return _squeezed(graph, graph.add("MatMul", weights, ordered), 1)


# --- encoders: (B, K, d) or ids (B, L), and a mask (B, K) → (B, dim) unit norm


def encoder(graph: Graph, module: nn.Module, values: str, mask: str) -> str:
    """Add one of our encoders; all of them are here."""
    if isinstance(module, RegionEncoder):
        return _embed_set(graph, values, mask, module)
    if isinstance(module, VectorEncoder):
        return _vector_encoder(graph, masked_mean(graph, values, mask), module)
    assert isinstance(module, WordEncoder | PlainWordEncoder)
    words = graph.add("Gather", graph.weight(module.embed.weight), values, axis=0)
    words = graph.add("Transpose", words, perm=[1, 0, 2])
    lengths = graph.add("Cast", _flat(graph, sizes(graph, mask)), to=_INT32)
    if not module.cap_rnn.bidirectional:
        return unit_norm(graph, _squeezed(graph, gru(graph, module.cap_rnn, words, lengths)[1], 0))
    states = graph.add("Transpose", bi_gru(graph, module.cap_rnn, words, lengths), perm=[1, 0, 2])
    if isinstance(module, WordEncoder):
        return _embed_set(graph, states, mask, module)
    return unit_norm(graph, masked_mean(graph, states, mask))


def vector_encoder(graph: Graph, module: nn.Module, rows: str) -> str:
    """Add the encoder of one vector per item (B, d)."""
    assert isinstance(module, VectorEncoder)
    return _vector_encoder(graph, rows, module)


def center(graph: Graph, vectors: str, centering: Centering | None) -> str:
    """Subtract the running mean and scale to unit norm, where embeddings are centred."""
    if centering is None:
        return vectors
    return unit_norm(graph, graph.add("Sub", vectors, graph.weight(centering.running_mean)))


def side_by_side(graph: Graph, networks: Sequence[str]) -> str:
    """Put the vectors of n networks beside each other, over √n."""
    joined = graph.add("Concat", *networks, axis=1)
    return graph.add("Div", joined, graph.weight(np.float32(np.sqrt(len(networks)))))


def _embed_set(graph: Graph, values: str, mask: str, module: RegionEncoder | WordEncoder) -> str:
    projected = graph.add("Add", linear(graph, values, module.fc), mlp(graph, values, module.mlp))
    if isinstance(module.gpool, GPO):
        return unit_norm(graph, gpo(graph, projected, mask, module.gpool))
    return unit_norm(graph, masked_mean(graph, projected, mask))


def _vector_encoder(graph: Graph, rows: str, module: VectorEncoder) -> str:
    if not isinstance(module.projection, MLP):
        return unit_norm(graph, linear(graph, rows, module.projection))
    projected = mlp(graph, rows, module.projection)
    if module.residual is not None:
        projected = graph.add("Add", projected, linear(graph, rows, module.residual))
    return unit_norm(graph, projected)


# --- small change

_FLOAT, _INT32, _INT64 = 1, 6, 7
"""numbers of element types, onnx.TensorProto's"""


def _double(value: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = value.detach().cpu().numpy().astype(np.float64)
    return array


def _onnx_gates(layer: nn.GRU, name: str) -> NDArray[np.float32]:
    """PyTorch's gates are reset, update, new; ONNX's are update, reset, hidden."""
    reset, update, new = np.split(getattr(layer, name).detach().cpu().numpy(), 3)
    return np.concatenate([update, reset, new])


def _length(graph: Graph, values: str, axis: int) -> str:
    return graph.add("Shape", values, start=axis, end=axis + 1)


def _range(graph: Graph, count: str) -> str:
    """0 .. count - 1, (count,) int64, of a count (1,)."""
    return graph.add("Range", graph.weight(np.array(0)), _squeezed(graph, count, 0), graph.weight(np.array(1)))


def _squeezed(graph: Graph, values: str, axis: int) -> str:
    return graph.add("Squeeze", values, graph.weight(np.array([axis])))


def _flat(graph: Graph, column: str) -> str:
    return _squeezed(graph, column, 1)


def _by_item(graph: Graph, by_time: str) -> str:
    return graph.add("Transpose", by_time, perm=[1, 0])


def _where(graph: Graph, mask: str, values: str, other: float) -> str:
    """Values (B, K, d) with `other` in the places that a mask (B, K) leaves out."""
    return _where_flat(graph, graph.add("Unsqueeze", mask, graph.weight(np.array([2]))), values, other)


def _where_flat(graph: Graph, mask: str, values: str, other: float) -> str:
    return graph.add("Where", mask, values, graph.weight(np.float32(other)))


def _position_code(graph: Graph, count: str, dim: int) -> str:
    """PE[k, 2j] = sin(k ω_j), PE[k, 2j+1] = cos(k ω_j), ω_j = 10000^(-2j/dim), as (count, dim)."""
    frequency = 10000.0 ** (-np.arange(0, dim, 2, dtype=np.float32) / dim)
    position = graph.add("Cast", _range(graph, count), to=_FLOAT)
    position = graph.add("Unsqueeze", position, graph.weight(np.array([1])))
    angle = graph.add("Mul", position, graph.weight(frequency.astype(np.float32)))
    both = [graph.add("Unsqueeze", graph.add(wave, angle), graph.weight(np.array([2]))) for wave in ("Sin", "Cos")]
    return graph.add("Reshape", graph.add("Concat", *both, axis=2), graph.weight(np.array([-1, dim])))

"""The ONNX folder: both encoders of a dual encoder for onnxruntime, without PyTorch.

image.onnx        regions (batch, regions, d), mask (batch, regions) → vector (batch, D)
text.onnx         ids (batch, words), mask (batch, words) → vector (batch, D); or vectors (batch, d) → vector (batch, D)
vocabulary.json   the words, where captions are read as text
config.json       format, sizes, inputs, and where the weights come from
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import in2r
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space, write_json
from in2r.models.description import description
from in2r.models.dual import DualEncoder
from in2r.models.folder import replaced_folder
from in2r.models.onnx_graph import Graph, center, encoder, side_by_side, vector_encoder

if TYPE_CHECKING:
    from in2r.models.retrieval import RetrievalModel

FORMAT = {"format": "in2r-onnx", "format_version": 1}
OPSET = 17
"""The oldest version that has all operators used (Shape with a range of axes needs 15) as they are written here."""
IR_VERSION = 8
"""of the file, the one of that operator set: older onnxruntimes read it too"""
LARGEST = 2**31 - 2**20
"""bytes of weights; a protobuf file ends at 2 GiB"""


def export_onnx(model: "RetrievalModel", folder: str | os.PathLike[str]) -> Path:
    """Write both encoders as ONNX files, whole or not at all; an older export at the same place is replaced.

    Batch, regions and words may be of any number, from one on. A mask says which regions and words are real: any
    regions of an image, the first words of a caption. The ensemble is one file per side, whose vector is the networks'
    side by side over √n, as `encode_images` returns it.

    Args:
        model: a loaded model.
        folder: the folder to make.

    Raises:
        InputError: the model compares words with regions; onnx is not installed; the weights do not fit into a file;
            something that is no export is there, or it cannot be written.
    """
    if model.interacts:
        raise InputError(
            "this model compares words with regions: two encoders do not give its similarities, so an ONNX export "
            "would be of another model; use RetrievalModel.score"
        )
    try:
        import onnx
    except ImportError:
        raise InputError('an export to ONNX needs onnx: pip install "in2r[onnx]"') from None
    networks = [network for network in model.networks.values() if isinstance(network, DualEncoder)]
    files = {f"{side}.onnx": _model(networks, model, side) for side in ("image", "text")}
    try:
        with replaced_folder(folder, FORMAT["format"]) as fresh:
            require_free_space(fresh, sum(file.ByteSize() for file in files.values()) + 2**20)
            for name, file in files.items():
                with atomic_path(fresh / name) as temporary:
                    onnx.save(file, temporary)
            if model.vocabulary is not None:
                model.vocabulary.save(fresh / "vocabulary.json")
            signatures = {name: _signature(file) for name, file in files.items()}
            write_json(fresh / "config.json", {**description(model), **FORMAT, "files": signatures})
    except OSError as error:
        raise InputError(f"{folder}: could not be written ({error.strerror}); an older export is kept") from None
    return Path(folder)


def _model(networks: Sequence[DualEncoder], model: "RetrievalModel", side: str) -> Any:
    """Return one side of all networks as an onnx.ModelProto, checked."""
    import onnx
    from onnx import TensorProto, helper

    graph, inputs = Graph(), model.inputs
    parts = [(net.image, net.image_center) if side == "image" else (net.text, net.text_center) for net in networks]
    if side == "text" and inputs.text == "vectors":
        given = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", inputs.text_dim])]
        encoded = [vector_encoder(graph, module, "vectors") for module, _ in parts]
    else:
        places = "regions" if side == "image" else "words"
        values, kind = ("regions", TensorProto.FLOAT) if side == "image" else ("ids", TensorProto.INT64)
        shape: list[str | int] = ["batch", places, inputs.image_dim] if side == "image" else ["batch", places]
        given = [
            helper.make_tensor_value_info(values, kind, shape),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, ["batch", places]),
        ]
        encoded = [encoder(graph, module, values, "mask") for module, _ in parts]
    centred = [center(graph, vector, mean) for vector, (_, mean) in zip(encoded, parts, strict=True)]
    last = side_by_side(graph, centred)
    graph.nodes.append(helper.make_node("Identity", [last], ["vector"]))
    result = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", model.dim])]
    if (size := sum(weight.ByteSize() for weight in graph.weights)) > LARGEST:
        raise InputError(f"{side}.onnx: {size / 2**30:.1f} GiB of weights; an ONNX file holds less than 2")
    made = helper.make_model(
        helper.make_graph(graph.nodes, side, given, result, graph.weights),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="in2r",
        producer_version=in2r.__version__,
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def _signature(file: Any) -> dict[str, Any]:
    """Return the names and shapes of a graph's inputs and outputs; a text is a size that may be any number."""
    return {
        "inputs": {value.name: _shape(value) for value in file.graph.input},
        "outputs": {value.name: _shape(value) for value in file.graph.output},
    }


def _shape(value: Any) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]

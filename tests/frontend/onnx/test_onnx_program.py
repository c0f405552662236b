"""torch.onnx.export's arguments and ONNXProgram, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.export import Dim
from tilewright.onnx import ExportableModule, OnnxExporterError, export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_session import operators, outputs  # noqa: E402


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(x) * 2.0)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        np.asarray(a.detach()), np.asarray(b), rtol=tolerance, atol=tolerance
    )


# ---- verification ----------------------------------------------------------------------------


def test_a_model_that_depends_on_a_size_unseen_is_found() -> None:
    """The probes see one graph. At a larger size the model takes another course."""

    def f(x: Any) -> Any:
        return x * (1.0 if x.shape[0] != 10 else 5.0)

    with pytest.raises(OnnxExporterError, match=r"verify: output differs by .* at n = 10"):
        export(f, tw.ones(8, 3), dynamic_axes={"x": {0: "n"}})
    program = export(f, tw.ones(8, 3), dynamic_axes={"x": {0: "n"}}, verify=False)
    close(f(tw.ones(9, 3)), program(tw.ones(9, 3))[0])


def test_bfloat16_is_written_with_a_warning() -> None:
    model = nn.Linear(3, 2).to(tw.bfloat16)
    with pytest.warns(UserWarning, match="no kernels"):
        program = export(model, tw.ones(2, 3, dtype=tw.bfloat16))
    assert (
        program.model_proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    )


# ---- arguments -------------------------------------------------------------------------------


def test_dynamic_shapes_of_dims_that_derive_from_others() -> None:
    batch = Dim("batch", min=2)
    args = (tw.randn(4, 3), [tw.randn(8, 3)])
    program = export(
        lambda x, more: tw.cat([x, more[0]]), args, dynamic_shapes=({0: batch}, [{0: 2 * batch}])
    )
    shapes = [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*program.model_proto.graph.input, *program.model_proto.graph.output)
    ]
    assert shapes == [["batch", 3], ["2*batch", 3], ["3*batch", 3]]
    x, y = tw.randn(5, 3), tw.randn(10, 3)
    close(tw.cat([x, y]), program(x, [y])[0])


def test_an_exported_program_and_an_exportable_module() -> None:
    model, x = Stack().eval(), tw.randn(2, 6)
    exported = tw.export.export(model, (x,))
    close(model(x), export(exported)(x)[0])

    class Mine(ExportableModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x)

        def example_arguments(self) -> Any:
            return (x,), None

        def input_names(self) -> list[str]:
            return ["given"]

        def dynamic_shapes(self) -> Any:
            return ({0: "rows"},)

    program = Mine().to_onnx(output_names=["made"])
    graph = program.model_proto.graph
    assert [graph.input[0].name, graph.output[0].name] == ["given", "made"]
    wide = tw.randn(7, 6)
    close(model(wide), program(given=wide)[0])
    with pytest.raises(NotImplementedError, match="must implement example_arguments"):
        export(ExportableModule())


def test_own_forms_of_operators() -> None:
    def quick(op: Any, x: str, approximate: str) -> str:
        return op.Mul(x, op.Sigmoid(op.Mul(x, np.float32(1.702))))

    for operator in (F.gelu, tw.ops.aten.gelu.default):
        program = export(
            lambda x: F.gelu(x) + 1, tw.randn(5), custom_translation_table={operator: quick}
        )
        x = np.linspace(-2, 2, 5, dtype=np.float32)
        np.testing.assert_allclose(
            outputs(program, x)[0], x / (1 + np.exp(-1.702 * x)) + 1, rtol=1e-5
        )
    own = export(
        F.relu,
        tw.randn(3),
        custom_translation_table={F.relu: lambda op, x: op.custom("mine::Fast", x, slope=0.5)},
    )
    (node,) = own.model_proto.graph.node
    assert (node.domain, node.op_type) == ("mine", "Fast")
    with pytest.raises(ValueError, match="no operator that is recorded"):
        export(F.relu, tw.randn(3), custom_translation_table={len: quick})


def test_reports(tmp_path: Any) -> None:
    export(nn.Linear(3, 2), tw.randn(2, 3), report=True, artifacts_dir=tmp_path)
    with pytest.raises(OnnxExporterError):
        export(lambda x: tw.lgamma(x), tw.ones(2), report=True, artifacts_dir=tmp_path)
    texts = {p.name.rsplit("_", 1)[1]: p.read_text() for p in tmp_path.iterdir()}
    assert "| Gemm | 1 |" in texts["success.md"]
    assert "Compared with onnxruntime at: the example's sizes" in texts["success.md"]
    assert "lgamma" in texts["failure.md"]


def test_a_branch_names_the_line_and_two_ways_out() -> None:
    def f(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(OnnxExporterError, match=r"test_onnx_program\.py:\d+\. Two ways out.*where"):
        export(f, tw.ones(2))


# ---- modules ---------------------------------------------------------------------------------


def test_modules_as_nested_functions() -> None:
    model, x = Stack().eval(), tw.randn(4, 6)
    program = export(model, x, dynamic_axes={"x": [0]}, export_modules_as_functions=True)
    names = [node.op_type for node in program.model_proto.graph.node]
    assert names == ["Sequential", "Mul", "Linear"] or names[0] == "Sequential"
    functions = {f.name: f for f in program.model_proto.functions}
    inner = [n.op_type for n in functions["Sequential"].node]
    assert inner == ["Block", "Block"], "equal modules share a function"
    assert {"LayerNorm", "Linear"} <= set(functions)
    close(model(x[:3]), program(x[:3])[0])
    some = export(model, x, export_modules_as_functions={Block})
    assert [f.name for f in some.model_proto.functions] == ["Block"]
    close(model(x), some(x)[0])


def test_nodes_have_the_names_of_modules() -> None:
    graph = export(Stack(), tw.randn(2, 6)).model_proto.graph
    names = [n.name for n in graph.node]
    assert "blocks.1.norm/LayerNormalization" in names and "head/Gemm" in names
    assert sum(n.startswith("blocks.0/") for n in names) >= 2


# ---- programs --------------------------------------------------------------------------------


def test_files_with_weights_outside(tmp_path: Any) -> None:
    import onnxruntime

    model, x = nn.Linear(64, 32), tw.randn(2, 64)
    path = tmp_path / "model.onnx"
    program = export(model, x, path)
    assert (tmp_path / "model.onnx.data").stat().st_size >= 64 * 32 * 4 > path.stat().st_size
    export(model, x, path)  # once more, in their place
    assert (tmp_path / "model.onnx.data").stat().st_size < 2 * 64 * 32 * 4
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    close(model(x), session.run(None, {"input": x.numpy()})[0])
    close(model(x), tw.onnx.load(path)(x).detach())
    bare = tmp_path / "bare.onnx"
    program.save(bare, include_initializers=False)
    loaded = onnx.load(str(bare)).graph
    assert not loaded.initializer
    assert [i.name for i in loaded.input] == ["input", "weight", "bias"]


def test_calls_weights_and_names() -> None:
    model, x = Stack().eval(), tw.randn(2, 6)
    program = export(model, x, dynamic_axes={"x": {0: "n"}})
    close(program.call_reference(x)[0], program(x)[0].numpy())
    inside = program.compute_values(["blocks.0.norm.weight"], (x,))
    close(inside[0], model.blocks[0].norm.weight.detach())
    other = Stack().eval()
    program.apply_weights(other.state_dict())
    close(other(x), program(x)[0])
    program.rename_axes({"n": "rows"})
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    with pytest.raises(ValueError, match=r"takes 1 tensors \(x\), got 2"):
        program(x, x)


def test_optimize_folds_what_is_constant() -> None:
    model = nn.Linear(4, 3)
    program = export(model, tw.randn(2, 5, 4))
    assert operators(program) == ["Transpose", "MatMul", "Add"]
    program.optimize()
    assert operators(program) == ["MatMul", "Add"]
    x = tw.randn(2, 5, 4)
    close(model(x), program(x)[0])


@pytest.mark.parametrize("per_channel", [True, False])
def test_eight_bits(per_channel: bool) -> None:
    tw.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 36, 16), nn.ReLU(), nn.Linear(16, 4),
    ).eval()  # fmt: skip
    program = export(model, tw.randn(2, 3, 6, 6), dynamic_axes={"input": [0]})
    samples = [tw.randn(4, 3, 6, 6) for _ in range(8)]
    small = program.quantized(samples, per_channel=per_channel)
    found = operators(small)
    assert "BatchNormalization" not in found and found.count("QuantizeLinear") >= 3
    kinds = {i.data_type for i in small.model_proto.graph.initializer}
    assert {onnx.TensorProto.INT8, onnx.TensorProto.INT32} <= kinds
    x = tw.randn(16, 3, 6, 6)
    exact, got = model(x).detach().numpy(), small(x)[0].numpy()
    # Each of three layers rounds weights and activations to 8 bits: half a step of 255 in each.
    largest = np.abs(exact).max()
    assert np.abs(got - exact).max() < 0.05 * largest
    # onnxruntime's integers don't overflow, whatever the processor: our own floats say the same.
    own = tw.onnx.load(small.model_proto)(x).numpy()
    assert np.abs(got - own).max() < 0.01 * largest
    whole = program.quantized(samples, per_channel=per_channel, reduce_range=False)
    weights = [onnx.numpy_helper.to_array(i) for i in whole.model_proto.graph.initializer]
    assert max(np.abs(w).max() for w in weights if w.dtype == np.int8 and w.ndim > 1) == 127
    with pytest.raises(ValueError, match="no samples"):
        program.quantized([])
    with pytest.raises(ValueError, match="no Conv"):
        export(F.relu, tw.randn(3)).quantized([tw.randn(3)])

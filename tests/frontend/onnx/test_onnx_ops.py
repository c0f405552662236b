"""The ONNX form of every op record: onnxruntime beside the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_oracle import Case, run

import tilewright as tw
from tilewright import recording
from tilewright.codegen import ops as codegen_ops
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.ops import lapack
from tilewright.onnx import UnsupportedOperatorError, export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_cases import (  # noqa: E402
    CHOSEN,
    DIVISORS,
    EDGES,
    EDGY,
    INTEGER_CASES,
    INTEGERS,
    exported,
    opsets,
    unsupported,
)
from onnx_session import operators, outputs  # noqa: E402
from op_cases import NEAR  # noqa: E402

from tilewright.onnx import exporter, forms  # noqa: E402

forms.register()


# ---- every record ----------------------------------------------------------------------------


def test_every_record_has_a_form_or_a_reason() -> None:
    given = {Kind.LEAF, Kind.CONSTANT, Kind.MARKER}  # the exporter itself knows them
    own = [*vars(codegen_ops).values(), *vars(lapack).values()]  # what legalization writes
    nowhere = [
        op.name
        for op in REGISTRY.values()
        if op.kind not in given
        and op.infer.__module__.startswith("tilewright.ir.")  # codegen has ops of its own
        and op not in exporter.FORMS
        and op not in exporter.UNSUPPORTED
        and not exporter.plain(op)
        and not callable(op.onnx)
        and op.decompose is None
        and not any(op is each for each in own)
    ]
    assert nowhere == []
    assert all(exporter.UNSUPPORTED.values())
    assert not set(exporter.FORMS) & set(exporter.UNSUPPORTED)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("opset", opsets())
@pytest.mark.parametrize("each", CHOSEN, ids=lambda c: c.name)
def test_case(each: Case, opset: int) -> None:
    if unsupported(each):
        with pytest.raises(UnsupportedOperatorError, match="has no ONNX form"):
            exported(each, np.float32, opset)
        return
    program, arrays, expected = exported(each, np.float32, opset)
    (got,) = outputs(program, *arrays)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


# What onnxruntime has on the CPU for float32 alone.
NO_DOUBLE = {
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Conv", "Cosh", "Erf"),
    *("InstanceNormalization", "Sinh", "Tan", "Mish", "Selu", "Softsign", "HardSwish"),
    "Det",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("each", CHOSEN, ids=lambda c: c.name)
def test_case_of_other_width(each: Case, dtype: Any) -> None:
    if unsupported(each):
        return
    program, arrays, expected = exported(each, dtype, 18)
    if dtype is np.float64 and NO_DOUBLE.intersection(operators(program)):
        return
    (got,) = outputs(program, *arrays)
    tolerance = 2e-2 if dtype is np.float16 else NEAR.get(each.name.partition("(")[0], 1e-12)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", INTEGER_CASES)
def test_integers(name: str) -> None:
    f = INTEGER_CASES[name]
    program = export(
        lambda *xs: recording.record(f, *xs), (tw.tensor(INTEGERS), tw.tensor(DIVISORS))
    )
    a, b = (ops.leaf(i, n.shape, dtypes.int64) for i, n in enumerate((INTEGERS, DIVISORS)))
    (expected,) = run([f(a, b)], {a: INTEGERS, b: DIVISORS})
    (got,) = outputs(program, INTEGERS, DIVISORS)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


NARROW = {
    np.int8: "add mul eq lt where sum",
    np.uint8: "add eq lt where sum max relu",
    np.int32: "add sub mul floor_divide remainder eq where sum cumsum max argsort",
}


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.__name__)
def test_narrow_integers(dtype: Any) -> None:
    x = np.array([[1, 2, 3], [9, 7, 5]], dtype)
    y = np.array([2, 3, 4], dtype)
    for name in NARROW[dtype].split():
        f: Any = {
            "sum": lambda x, y: ops.sum(x, (1,)),
            "max": lambda x, y: ops.max(x, (1,)),
            "relu": lambda x, y: ops.relu(x),
            "cumsum": lambda x, y: ops.cumsum(x, 1),
            "argsort": lambda x, y: ops.argsort(x, 1),
            "where": lambda x, y: ops.where(ops.gt(x, y), x, y),
        }.get(name) or REGISTRY[name]
        program = export(
            lambda *xs, f=f: recording.record(f, *xs),
            (tw.tensor(x), tw.tensor(y)),
            opset_version=18,
        )
        a, b = (ops.leaf(i, n.shape, dtypes.from_numpy(n.dtype)) for i, n in enumerate((x, y)))
        (expected,) = run([f(a, b)], {a: x, b: y})
        try:
            (got,) = outputs(program, x, y)
        except Exception as error:  # valid ONNX that onnxruntime has no kernel for
            assert "NOT_IMPLEMENTED" in str(error), name
            assert dtype is not np.int32, name
            continue
        np.testing.assert_array_equal(got, expected, err_msg=name)


def test_bools() -> None:
    def f(x: Node, y: Node) -> Node:
        logic = ops.bitwise_or(ops.bitwise_and(x, y), ops.bitwise_xor(x, ops.bitwise_not(y)))
        order = ops.bitwise_and(ops.le(x, y), ops.eq(ops.maximum(x, y), ops.add(x, y)))
        return ops.bitwise_and(ops.any(logic, (0,)), ops.all(order, (1,)))

    x, y = np.array([[True, False], [False, False]]), np.array([[True], [False]])
    program = export(lambda *xs: recording.record(f, *xs), (tw.tensor(x), tw.tensor(y)))
    a, b = (ops.leaf(i, n.shape, dtypes.bool_) for i, n in enumerate((x, y)))
    np.testing.assert_array_equal(outputs(program, x, y)[0], run([f(a, b)], {a: x, b: y})[0])


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "int8", "int64", "bool"])
def test_casts(name: str) -> None:
    dtype = getattr(tw, name)
    x = np.array([0.0, 1.5, -2.25, 100.0], np.float32)
    program = export(lambda x: x.to(dtype).to(tw.float32) * 2, tw.tensor(x))
    expected = np.asarray(tw.tensor(x).to(dtype).to(tw.float32) * 2)
    np.testing.assert_array_equal(outputs(program, x)[0], expected)


@pytest.mark.parametrize("name", EDGY.split())
def test_edges(name: str) -> None:
    x = EDGES.astype(np.float32)
    program = export(lambda x: recording.record(REGISTRY[name], x), tw.tensor(x), verify=False)
    node = ops.leaf(0, x.shape, dtypes.float32)
    expected = run([REGISTRY[name](node)], {node: x})[0]
    got = outputs(program, x)[0]
    if name in ("sign", "relu"):  # onnxruntime's Sign and Relu of NaN are 0
        got, expected = got[1:], expected[1:]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["atan2", "copysign", "fmod", "remainder", "floor_divide"])
def test_signs(name: str) -> None:
    a, b = (v.ravel().astype(np.float32) for v in np.meshgrid(EDGES[3:], EDGES[3:]))
    program = export(
        lambda x, y: recording.record(REGISTRY[name], x, y), (tw.tensor(a), tw.tensor(b))
    )
    nodes = [ops.leaf(i, a.shape, dtypes.float32) for i in range(2)]
    expected = run([REGISTRY[name](*nodes)], dict(zip(nodes, (a, b))))[0]
    np.testing.assert_allclose(outputs(program, a, b)[0], expected, rtol=1e-6)

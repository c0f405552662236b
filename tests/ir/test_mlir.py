"""Graphs as MLIR text and back: by our own parser, through xDSL, and through upstream MLIR."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import GOLDEN

from tilewright import recording
from tilewright.ir import dtype as dt
from tilewright.ir import node as node_module
from tilewright.ir import ops
from tilewright.ir.mlir import (
    MLIRError,
    parse,
    parse_graph,
    print_graph,
)
from tilewright.ir.mlir.values import from_attribute
from tilewright.ir.node import Node, clear_tables, grad_mode, intern
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.ops.unary import bitcast, cast
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.recurrence import recurrence
from tilewright.ir.reference import evaluate
from tilewright.ir.shape import Size


def leaf(index: int, shape: tuple[int, ...], dtype: dt.DType = dt.float32) -> Node:
    return ops.leaf(index, Size(shape), dtype)


@pytest.fixture
def empty_tables() -> Iterator[None]:
    """No interned nodes inside the test."""
    recording.flush()
    recording.clear_tables()
    yield
    clear_tables()


# Graphs of every op family


def elementwise() -> list[Node]:
    """Each elementwise record without attrs, on the first dtype it takes."""
    roots = []
    for op in list(REGISTRY.values()):
        if op.kind is not Kind.ELEMENTWISE or op.params:
            continue
        assert isinstance(op.numpy, str)
        arity = 1 + max(i for i in range(3) if f"{{{i}}}" in op.numpy)
        for dtype in (dt.float32, dt.int32, dt.bool_, dt.complex64):
            operands = [leaf(i, (2, 3) if i else (3,), dtype) for i in range(arity)]
            if op.name == "where":
                operands[0] = leaf(9, (2, 3), dt.bool_)
            try:
                roots.append(op(*operands))
                break
            except (TypeError, RuntimeError):
                continue
        else:
            pytest.fail(f"no operands for {op}")
    return roots


def casts() -> list[Node]:
    sources = [leaf(i, (4,), dtype) for i, dtype in enumerate(dt.ALL)]
    roots = [cast(x, dtype) for x in sources for dtype in dt.ALL]
    return [*roots, bitcast(leaf(0, (4,), dt.float32), dt.uint32)]


def constants() -> list[Node]:
    values: list[tuple[Any, dt.DType]] = [
        (value, dtype)
        for dtype in (dt.float16, dt.bfloat16, dt.float32, dt.float64)
        for value in (0.0, -0.0, 1.0, 0.1, -1 / 3, 1e-6, 60000, math.inf, -math.inf, math.nan)
    ]
    values += [(5e-324, dt.float64), (1e-45, dt.float32), (1e-40, dt.float32)]
    values += [(1.7976931348623157e308, dt.float64), (1e22, dt.float64), (6e-8, dt.float16)]
    values += [(1e-40, dt.bfloat16), (True, dt.bool_), (False, dt.bool_)]
    for dtype in (dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.int8, dt.int16, dt.int32, dt.int64):
        limits = np.iinfo(dtype.np)
        values += [(v, dtype) for v in (limits.min, 0, 1, limits.max)]
    on_device = [ops.constant(0.5, dt.float32, "cuda:0"), ops.constant(3, dt.int64, "cpu")]
    return [*(ops.constant(*each) for each in values), *on_device]


def movement() -> list[Node]:
    x = leaf(0, (2, 3, 4))
    padded = ops.pad(x, (1, 0, -1), (0, 2, 0), (0, 1, 2), ops.constant(-0.0, dt.float32))
    return [
        ops.reshape(x, (6, -1)),
        ops.reshape(leaf(1, (1, 1)), ()),
        ops.permute(x, (2, 0, 1)),
        ops.expand(leaf(2, (3, 1)), (5, 3, 4)),
        ops.slice_(x, (0, 1, 0), (2, 3, 4), (1, 1, 2)),
        padded,
        ops.flip(x, (0, 2)),
        ops.cat([x, leaf(3, (2, 1, 4)), x], 1),
        ops.windows(x, (1, 2), (2, 2), (1, 2), (1, 1)),
        ops.fold(leaf(4, (2, 2, 2)), (2, 5), (1,), (2,), (2,), (1,)),
    ]


def reductions() -> list[Node]:
    x, flags = leaf(0, (2, 3, 4)), leaf(1, (2, 3, 4), dt.bool_)
    floats = [op(x, (0, 2)) for op in (ops.sum, ops.prod, ops.max, ops.min)]
    return [*floats, ops.any(flags, (1,)), ops.all(flags, (0, 1, 2)), *arguments(x)]


def arguments(x: Node) -> list[Node]:
    return [ops.argmax(x, (1,)), ops.argmin(x, (0, 1, 2))]


def contractions() -> list[Node]:
    x, w = leaf(0, (2, 4, 8, 8)), leaf(1, (6, 2, 3, 3))
    attrs = ((2, 1), ((1, 0), (2, 2)), (1, 2), 2)
    y = ops.conv(x, w, *attrs)
    return [
        ops.matmul(leaf(2, (5, 2, 3), dt.bfloat16), leaf(3, (3, 4), dt.bfloat16)),
        y,
        ops.conv_input_grad(y, w, (8, 8), *attrs),
        ops.conv_weight_grad(y, x, (3, 3), *attrs),
    ]


def attention() -> list[Node]:
    q, k = (ops.variable(leaf(i, (2, 3, 4)), i) for i in range(2))
    y = ops.scaled_dot_product_attention(q, k, leaf(2, (2, 3, 5)), causal=True)
    return [y, *pullback({y: leaf(3, (2, 3, 5))}, [q, k], create_graph=True).values()]


def indexing() -> list[Node]:
    x, i = leaf(0, (5, 6, 7)), leaf(1, (3, 1), dt.int64)
    j = ops.iota(4)
    taken = ops.gather(x, i, j, 1)
    modes = [ops.scatter(x, taken, i, j, 1, mode) for mode in ("set", "add", "mul", "max", "min")]
    return [taken, *modes, ops.checked(i, 6, 1, "index")]


def scans() -> list[Node]:
    x = leaf(0, (3, 4))
    folds = [op(x, 1) for op in (ops.cumsum, ops.cumprod, ops.cummax_index, ops.cummin_index)]
    return [*folds, ops.argsort(x, 0, False), ops.argsort(x, 1, True)]


def loops() -> list[Node]:
    x, h, w = (ops.variable(leaf(i, s), i) for i, s in enumerate(((3, 2, 4), (2, 4), (4, 4))))
    y, _ = recurrence("rnn_tanh", x, (h,), w, reverse=True)
    ones = ops.expand(ops.constant(1, y.dtype), y.shape)
    return [y, *pullback({y: ones}, [x, h, w]).values()]


def launches() -> list[Node]:
    """Of a kernel of the user's, which has two results, with a number beside its tensors."""
    x, y, number = leaf(0, (2, 3)), leaf(1, (4,), dt.int32), ops.scalar(0, dt.float32)
    written = (1, ((5,), dt.float16))
    with grad_mode(False):
        return [ops.external(x, y, number, "a_kernel.0", 2, written, i) for i in range(2)]


def routines() -> list[Node]:
    """Results of LAPACK's routines."""
    x = leaf(0, (3, 2, 2))
    return [*ops.called(ops.svd, x, True), ops.solve_triangular(x, x, False, True)]


def generated() -> list[Node]:
    seed, offset = ops.scalar(0, dt.int64), ops.scalar(1, dt.int64)
    return [
        ops.iota(7),
        intern(ops.iota, (), (5,), "cuda:0"),
        ops.random_bits(seed, offset, Size((2, 3))),
        ops.random_words(seed, offset, Size((2, 3))),
        intern(ops.random_bits, (seed, offset), (Size((4,)),), "cuda:1"),
    ]


def leaves() -> list[Node]:
    each = [leaf(len(dt.ALL) - i, (2,), dtype) for i, dtype in enumerate(dt.ALL)]
    on_device = intern(ops.leaf, (), (0, Size((2,)), dt.float32), "cuda:0")
    explicit = intern(ops.neg, (on_device,), (), "cuda:0")
    empty = [leaf(20, (0, 3)), leaf(21, (0,)), leaf(22, (2, 0, 4))]
    return [
        *each,
        *each,
        on_device,
        ops.neg(on_device),
        explicit,
        ops.copy_to(on_device, "cpu"),
        *empty,
        ops.scalar(3, dt.float64),
    ]


def with_gradient() -> list[Node]:
    """Nodes recorded with gradient and without, over the same operands."""
    p = ops.variable(leaf(0, (2, 3)), 0)
    q = ops.variable(leaf(1, (3,)), 1)
    loss = ops.reshape(ops.sum(ops.tanh(p * q) * p, (0, 1)), ())
    one = ops.constant(1, dt.float32)
    first = pullback({loss: one}, [p, q], create_graph=True)
    second = pullback({loss: one}, [p, q])
    with grad_mode(False):
        without = [ops.exp(p), ops.gt(p, q), ops.detach(p), p * q, leaf(2, (2,)) * 2]
    compared = [ops.gt(p, q), ops.detach(p), ops.with_value(p, leaf(3, (2, 3))), ops.exp(p)]
    return [loss, *first.values(), *second.values(), *without, *compared]


GRAPHS = (
    elementwise,
    casts,
    constants,
    movement,
    reductions,
    contractions,
    attention,
    indexing,
    scans,
    loops,
    launches,
    routines,
    generated,
    leaves,
    with_gradient,
)
every_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)


def test_the_graphs_have_every_kind_of_op() -> None:
    reached = {n.op for graph in GRAPHS for n in node_module.reachable(graph())}
    kinds = {op.kind for op in REGISTRY.values()} - {Kind.COMPOSITE}  # has its own test
    assert {op.kind for op in reached} >= kinds


# The same nodes come back


def same(text: str, roots: list[Node]) -> None:
    for back, root in zip(parse_graph(text), roots, strict=True):
        assert back is root, f"{root!r} came back as {back!r}"


@every_graph
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_round_trip(graph: Callable[[], list[Node]], grad: bool) -> None:
    with grad_mode(grad):
        roots = graph()
        text = print_graph(roots)
        same(text, roots)
    with grad_mode(not grad):  # the text says how its nodes were recorded
        same(text, roots)


@every_graph
def test_new_nodes_are_as_the_text_says(
    graph: Callable[[], list[Node]], empty_tables: None
) -> None:
    roots = graph()
    text = print_graph(roots)
    clear_tables()
    again = parse_graph(text)
    assert print_graph(again) == text  # with locations
    for new, old in zip(again, roots, strict=True):
        assert new.shape == old.shape and isinstance(new.shape, Size)
        assert (new.requires_grad, new.device, new.loc) == (old.requires_grad, old.device, old.loc)


@every_graph
def test_xdsl_reads_and_reprints_it(graph: Callable[[], list[Node]]) -> None:
    roots = graph()
    same(through_xdsl(print_graph(roots)), roots)


def through_xdsl(text: str) -> str:
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func
    from xdsl.parser import Parser
    from xdsl.printer import Printer

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    module = Parser(context, text).parse_module()
    module.verify()
    out = io.StringIO()
    Printer(out, print_generic_format=True, print_debuginfo=True).print_op(module)
    return out.getvalue()


@every_graph
@pytest.mark.parametrize("locations", [True, False])
def test_upstream_mlir_reads_and_reprints_it(
    graph: Callable[[], list[Node]], locations: bool
) -> None:
    """jaxlib is the one wheel on PyPI that carries upstream's Python bindings."""
    upstream = pytest.importorskip("jaxlib.mlir.ir")
    pytest.importorskip("jaxlib.mlir.dialects.func")
    roots = graph()
    with upstream.Context() as context:
        context.allow_unregistered_dialects = True
        module = upstream.Module.parse(print_graph(roots))
        assert module.operation.verify()
        text = module.operation.get_asm(
            print_generic_op_form=True, enable_debug_info=locations, large_elements_limit=None
        )
    same(text, roots)


def test_attrs_of_every_type() -> None:
    infer = lambda x, *attrs: (x.shape, x.dtype)  # noqa: E731
    params = ("none", "flag", "count", "wide", "rate", "mode", "axes", "nested", "to", "empty")
    op = Op("test_attrs", Kind.COMPOSITE, infer, params=params)
    try:
        quoted = 'a "b" \\ \n\t é ∂ \x7f %0 // no comment'
        attrs = (
            None,
            True,
            -3,
            2**64 - 1,
            -0.0,
            quoted,
            (0, -1),
            ((1, (None, 0.5)), "x", dt.uint8),
        )
        node = op(leaf(0, (2,)), *attrs, dt.bfloat16, ())
        text = print_graph([node])
        assert "tw.test_attrs" in text
        for back in (text, through_xdsl(text)):
            (again,) = parse_graph(back)
            assert again is node
        (module,) = parse(text)
        printed = module.regions[0][0].operations[0].regions[0][0].operations[0].attributes
        back = tuple(map(from_attribute, printed.values()))
        assert repr(back) == repr((*attrs, dt.bfloat16, ()))  # types and signs too
    finally:
        del REGISTRY["test_attrs"]


def test_each_nan_keeps_its_bits() -> None:
    # Not in `constants`: xDSL holds a float as Python's, which has one NaN of 16 bits and no
    # signalling ones. Upstream keeps them all.
    bits = [(0x7F800001, dt.float32), (0xFFC12345, dt.float32), (0x7F81, dt.bfloat16)]
    bits += [(0xFE01, dt.float16), (0x7FF0000000000001, dt.float64)]
    roots = [intern(REGISTRY["constant"], (), each) for each in bits]
    text = print_graph(roots)
    assert "0x7F800001 : f32" in text
    same(text, roots)


def test_a_file_name_with_odd_characters(empty_tables: None) -> None:
    loc = ('C:\\my "é"\udcff\n.py', 7)
    node = intern(ops.iota, (), (3,), None, loc)
    text = print_graph([node])
    clear_tables()
    assert parse_graph(text)[0].loc == loc


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_graphs(data: st.DataObject) -> None:
    nodes = [leaf(0, (2, 3)), ops.variable(leaf(1, (2, 3)), 0), ops.scalar(0, dt.float32)]
    binary = (ops.add, ops.mul, ops.div, ops.maximum, ops.atan2)
    unary = (ops.neg, ops.exp, ops.relu, ops.detach, lambda x: x + 0.1)
    shaped = (
        lambda x: ops.expand(x, (4, *x.shape)),
        lambda x: ops.sum(x, tuple(range(x.rank))),
        lambda x: ops.flip(x, tuple(range(x.rank))),
        lambda x: ops.pad(x, [1] * x.rank, [0] * x.rank, [2] * x.rank),
        lambda x: ops.permute(x, tuple(reversed(range(x.rank)))),
    )
    for _ in range(data.draw(st.integers(1, 12))):
        x = data.draw(st.sampled_from(nodes))
        with grad_mode(data.draw(st.booleans())):
            kind = data.draw(st.sampled_from(("binary", "unary", "shaped", "constant")))
            if kind == "binary":
                other = data.draw(st.sampled_from([n for n in nodes if n.shape in (x.shape, ())]))
                nodes.append(data.draw(st.sampled_from(binary))(x, other))
            elif kind == "unary":
                nodes.append(data.draw(st.sampled_from(unary))(x))
            elif kind == "shaped" and math.prod(x.shape) < 10_000:
                nodes.append(data.draw(st.sampled_from(shaped))(x))
            else:
                nodes.append(ops.constant(data.draw(st.floats(width=32)), dt.float32))
    roots = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
    same(print_graph(roots), roots)


# A graph in a file

TRAIN = """
x = leaf(0, (2, 3), float32)
w = variable(leaf(1, (3, 4), float32), 0)
rate = scalar(0, float32)
h = relu(matmul(x, w) + 0.5)
loss = sum(h * h, (0, 1))
(grad,) = pullback({loss: constant(1.0, float32) + loss * 0}, [w]).values()
new = w - grad * rate
"""


def recorded_in_train_py() -> list[Node]:
    names = {**vars(ops), "float32": dt.float32, "pullback": pullback}
    exec(compile(TRAIN, "train.py", "exec"), names)
    return [names["loss"], names["new"]]


def test_golden_file(empty_tables: None) -> None:
    text = print_graph(recorded_in_train_py(), "step")
    path = GOLDEN / "train_step.mlir"
    if os.environ.get("TW_ACCEPT") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "run with TW_ACCEPT=1 if the change is meant"


def test_the_golden_file_computes_a_training_step(empty_tables: None) -> None:
    loss, new = parse_graph((GOLDEN / "train_step.mlir").read_text(encoding="utf-8"))
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=s).astype(np.float32) for s in ((2, 3), (3, 4)))
    inputs = {("leaf", 0): x, ("leaf", 1): w, ("scalar", 0): np.float32(0.1)}
    values: dict[Node, Any] = {}
    for node in node_module.reachable([loss, new]):
        if node.op.kind is Kind.LEAF:
            values[node] = inputs[node.op.name, node.attrs[0]]
        elif node.op.kind is Kind.CONSTANT:
            values[node] = ops.constant_value(node)
        elif node.op.kind is Kind.MARKER:
            values[node] = values[node.operands[0]]
        else:
            values[node] = evaluate(node, [values[o] for o in node.operands])
    h = np.maximum(x @ w + 0.5, 0)
    np.testing.assert_allclose(values[loss].item(), (h * h).sum(), rtol=1e-5)
    np.testing.assert_allclose(values[new], w - 0.1 * (x.T @ (2 * h)), rtol=1e-5, atol=1e-6)


# Text written by hand


def function(body: str, *, result: str = "tensor<2x3xf32>", returned: str = "%0") -> str:
    return f"""\
"func.func"() <{{
  sym_name = "f", function_type = (tensor<2x3xf32>, tensor<f32>) -> {result},
  arg_attrs = [{{tw.leaf = 0}}, {{tw.scalar = 0}}]
}}> ({{
^entry(%x: tensor<2x3xf32>, %s: tensor<f32>):
{body}
  "func.return"({returned}) : ({result}) -> ()
}}) : () -> ()
"""


MUL = '  %0 = "tw.mul"(%x, %s) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>'


def test_text_by_hand(empty_tables: None) -> None:
    (node,) = parse_graph(f"// a comment\n{function(MUL)}", "hand.mlir")
    assert node is leaf(0, (2, 3)) * ops.scalar(0, dt.float32)
    assert node.loc == ("hand.mlir", 7)


def test_the_order_of_attributes_is_free() -> None:
    text = (
        '  %0 = "tw.slice"(%x) {steps = [1, 1], stops = [2, 3], starts = [1, 0]} '
        ": (tensor<2x3xf32>) -> tensor<1x3xf32>"
    )
    (node,) = parse_graph(function(text, result="tensor<1x3xf32>"))
    assert node is ops.slice_(leaf(0, (2, 3)), (1, 0), (2, 3), (1, 1))


@pytest.mark.parametrize(
    ("before", "after", "line", "column", "expected", "got"),
    [
        ('"tw.mul"', "tw.mul", 6, 8, 'generic form, such as "tw.mul"(…)', "'tw.mul'"),
        ('"tw.mul"', '"tw.mull"', 6, 8, 'did you mean "tw.mul"?', '"tw.mull"'),
        ('"tw.mul"', '"arith.mul"', 6, 8, "an operation of dialect tw", '"arith.mul"'),
        ('"tw.mul"', '"tw.leaf"', 6, 8, "leaves are arguments", '"tw.leaf"'),
        ('"tw.mul"', '"tw.mul', 6, 8, "a string that ends on its line", '"tw.mul(%x'),
        ("(%x, %s) :", "(%x, %y) :", 6, 21, "a value that is defined above", "%y"),
        ("(%x, %s) :", "(%x %s) :", 6, 20, "',' or ')'", "'%s'"),
        ("(%x, %s) :", "(%x) :", 6, 23, "1 operand type", "2"),
        ("(%x, %s) :", "(%s, %x) :", 6, 28, "tensor<f32> for %s, defined in line 5", "2x3"),
        ("%0 =", "%x =", 6, 3, "a new name", "%x, which line 5 defines"),
        ("%0 =", "%0, %1 =", 6, 31, "2 result types", "1"),
        ("%0 =", "%0 ?", 6, 6, "'='", "'?'"),
        (") -> tensor<2x3xf32>\n ", ")\n ", 7, 3, "'->'", '"func.return"'),
        (") -> tensor<2x3xf32>\n ", ") -> tensor<3xf32>\n ", 7, 24, "<3xf32> for %0", "2x3"),
        (") -> tensor<2x3xf32>\n ", ") -> tensor<2x3xfoo>\n ", 6, 72, "a type, such as", "'foo'"),
        (") -> tensor<2x3xf32>\n ", ") -> tensor<2x3xf32, 1>\n ", 6, 75, "no layout", "','"),
        (" : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>\n", "\n", 7, 3, "':' and", "return"),
        ("%s) :", "%s) {axis = 1} :", 6, 8, "no attributes but tw.device, tw.no_grad", "axis"),
        ("%s) :", "%s) {axis = } :", 6, 33, "an attribute", "'}'"),
        ("%s) :", "%s) {a, a} :", 6, 29, "each attribute once", "a again"),
        ("%s) :", "%s) {a = [1, 2} :", 6, 35, "',' or ']'", "'}'"),
        ("%s) :", "%s) {a = 300 : ui8} :", 6, 30, "from 0 to 255 for ui8", "300"),
        ("%s) :", "%s) {a = 1 : f32} :", 6, 30, "a decimal with a point, or bits in hex", "1"),
        ("%s) :", "%s) {a = 1.5 : i32} :", 6, 30, "an integer for i32", "1.5"),
        ("%s) :", "%s) {a = 0x100000000 : f32} :", 6, 30, "32 bits for f32", "0x100000000"),
        ("%s) :", "%s) {a = #b} :", 6, 30, "an attribute alias that is defined above", "'#b'"),
        ("%s) :", "%s) {tw.device = 3} :", 6, 8, "a string tw.device", "Integer"),
        ("%s) :", "%s)[^bb1] :", 6, 24, "without successors", "'['"),
        ("f32>\n  \"func", 'f32> loc("a":1)\n  "func', 6, 86, "':' and a column", "')'"),
        ("f32>\n  \"func", 'f32> loc(#l)\n  "func', 6, 77, "a definition #l = loc(…)", "none"),
        ("tw.leaf = 0", "tw.leaf", 5, 8, "an integer tw.leaf for %x", "Unit"),
        ("tw.leaf = 0", "", 5, 8, "the place of %x in the run", "none"),
        ("{tw.leaf = 0}, ", "", 1, 1, "an array arg_attrs of 2 dictionaries", "1"),
        ("-> tensor<2x3xf32>,", "-> tensor<3xf32>,", 1, 1, "function_type = (", "tensor<3xf32>"),
        ("%x: tensor<2x3xf32>", "%x: f32", 6, 28, "f32 for %x, defined in line 5", "<2x3xf32>"),
        ("  \"func.return\"(%0) : (tensor<2x3xf32>) -> ()\n", "", 1, 1, "ends with", "none"),
        ("}) : () -> ()", "", 9, 1, "'}' at the end of the region", "the end of the text"),
        ("^entry", "^entry$ $", 5, 9, "MLIR text", "the character '$'"),
        ('"func.func"', '"func.fun"', 1, 1, 'one "func.func"', '"func.fun"'),
    ],
)  # fmt: skip
def test_errors(before: str, after: str, line: int, column: int, expected: str, got: str) -> None:
    text = function(MUL)
    assert text.count(before) >= 1
    with pytest.raises(MLIRError) as caught:
        parse_graph(text.replace(before, after, 1), "hand.mlir")
    message = str(caught.value)
    assert expected in message.split(", got ", 1)[0], message
    assert got in message.split(", got ", 1)[1], message
    assert (caught.value.line, caught.value.column) == (line, column), message
    assert message.startswith(f"hand.mlir:{line}:{column}: expected ")


def test_an_error_shows_the_line() -> None:
    with pytest.raises(MLIRError) as caught:
        parse_graph(function(MUL.replace("%s", "%t")), "hand.mlir")
    assert str(caught.value) == (
        "hand.mlir:6:21: expected a value that is defined above, got %t\n"
        f"{MUL.replace('%s', '%t')}\n"
        f"{' ' * 20}^"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"tw.matmul"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>)', "matmul: inner sizes differ"),
        ('"tw.exp"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>)', "1 operand of tw.exp, got 2"),
        ('"tw.sum"(%x) : (tensor<2x3xf32>)', "expected the attribute axes of tw.sum, got none"),
        ('"tw.sum"(%x) {axes = 1} : (tensor<2x3xf32>)', "operands and attributes that sum takes"),
        ('"tw.sum"(%x) {axes = unit} : (tensor<2x3xf32>)', "a value for the attribute axes, got"),
        ('"tw.sum"(%x) ({}) {axes = [1]} : (tensor<2x3xf32>)', "tw.sum without regions, got 1"),
        ('"tw.constant"() {value = "a"} : ()', "for the attribute value, got expected a number"),
        ('"tw.constant"() {value = 1 : i7} : ()', "for the attribute value, got expected a number"),
    ],
)  # fmt: skip
def test_what_an_op_rejects_is_an_error_of_the_text(line: str, message: str) -> None:
    with pytest.raises(MLIRError) as caught:
        parse_graph(function(f"  %0 = {line} -> tensor<2x3xf32>"))
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (6, 8)


@pytest.mark.parametrize("stated", ["tensor<3xf32>", "tensor<2x3xf64>", "tensor<2x3xf31>", "f32"])
def test_a_type_that_the_op_does_not_give(stated: str) -> None:
    line = f'  %0 = "tw.exp"(%x) : (tensor<2x3xf32>) -> {stated}'
    with pytest.raises(MLIRError) as caught:
        parse_graph(function(line, result=stated))
    assert f"expected tensor<2x3xf32>, the type of this tw.exp, got {stated}" in str(caught.value)


@pytest.mark.parametrize("text", ["", '"builtin.module"() ({}) : () -> ()', function(MUL) * 2])
def test_one_function_is_expected(text: str) -> None:
    with pytest.raises(MLIRError, match=r'expected one "func\.func" that holds the graph'):
        parse_graph(text)


def test_every_truncation_is_an_error() -> None:
    text = function(MUL)
    for end in range(len(text.rstrip())):
        with pytest.raises(MLIRError):
            parse_graph(text[:end])

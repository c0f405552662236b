"""Recipes make the very nodes that the function makes, which interning shows: they are the same
objects."""

from __future__ import annotations

from typing import Any

import pytest
from graph_oracle import Case
from op_cases import CASES

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode, intern, set_location
from tilewright.ir.passes.autodiff import _cotangents, decomposed
from tilewright.ir.recipe import Recipe, by_recipe
from tilewright.ir.shape import Size


def _again(node: Node, shift: int) -> Node:
    """The graph of `node` over other leaves."""
    attrs = node.attrs
    if node.op in (ops.leaf, ops.variable):
        index, *rest = attrs
        attrs = ((index, shift), *rest)
    operands = tuple(_again(o, shift) for o in node.operands)
    grad, device = node.instruction.recorded
    with grad_mode(grad):
        return intern(node.op, operands, attrs, device)


def _cotangent(node: Node, index: int) -> Node:
    return ops.leaf(index, Size(node.shape), node.dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_derivatives(case: Case, dtype: dtypes.DType) -> None:
    """The cotangents of a record's operands, with and without a gradient of their own."""
    root = case.f(*case.leaves(dtype.np))
    if not root.requires_grad:
        return
    for create_graph in (False, True):
        known: dict[Any, Any] = {}
        for shift in range(4):
            node = _again(root, shift)
            nodes = (_cotangent(node, -1 - shift), *node.operands, node)
            with grad_mode(create_graph):
                try:
                    expected = _cotangents(*nodes)
                except NotImplementedError:
                    break
                found = by_recipe(known, "vjp", _cotangents, nodes, node)
            assert found == tuple(expected)


COMPOSITE = [c for c in CASES if c.f(*c.leaves()).op.decompose is not None]


@pytest.mark.parametrize("case", COMPOSITE, ids=lambda c: c.name)
def test_decompositions(case: Case) -> None:
    root = case.f(*case.leaves())
    for shift in range(4):
        node = _again(root, shift)
        with grad_mode(True):
            assert node.op.decompose is not None
            expected = node.op.decompose(*node.operands, *node.attrs)
        assert decomposed(node) is expected


def _leaf(index: int, *shape: int, dtype: dtypes.DType = dtypes.float32) -> Node:
    return ops.leaf(index, Size(shape), dtype)


def _runs(build: Any, *calls: tuple[Node, ...]) -> int:
    """How often `build` runs itself for `calls`, each of which gets what it would return."""
    count = 0
    known: dict[Any, Any] = {}

    def counted(*operands: Node) -> Any:
        nonlocal count
        count += 1
        return build(*operands)

    for operands in calls:
        found = by_recipe(known, None, counted, operands)
        assert found == build(*operands)
    return count


def test_the_third_call_makes_the_recipe() -> None:
    a, b, c, d = (_leaf(i, 3) for i in range(4))
    calls = [(a, b), (b, c), (c, d), (d, a), (a, c)]
    assert _runs(lambda x, y: ops.exp(x) * y + 1.0, *calls) == 3


def test_a_cotangent_that_is_the_node_itself() -> None:
    known: dict[Any, Any] = {}
    for i in range(4):
        x = ops.variable(_leaf(i, 3), i)
        y = ops.exp(x)
        nodes = (y, x, y)
        assert by_recipe(known, "vjp", _cotangents, nodes, y) == _cotangents(*nodes)


@pytest.mark.parametrize("case", COMPOSITE, ids=lambda c: c.name)
def test_cotangents_of_a_composite_leave_the_location_as_it_was(case: Case) -> None:
    """On their way through the decomposition new nodes get the locations of its nodes."""
    root = case.f(*case.leaves())
    if root.requires_grad:
        _cotangents(_cotangent(root, -1), *root.operands, root)
    assert set_location(None) is None


def test_operands_that_are_one() -> None:
    """`x - x` and `x - y` may be built differently."""
    a, b, c, d = (_leaf(i, 3) for i in range(4))

    def build(x: Node, y: Node) -> Node:
        return ops.zeros_like(x) if x is y else x - y

    calls = [(a, b), (a, a), (b, c), (b, b), (c, a), (c, c), (c, d), (d, d)]
    assert _runs(build, *calls) == 6


def test_values_of_constants() -> None:
    leaves = [_leaf(i, 3) for i in range(4)]
    two, three = (ops.constant(v, dtypes.float32) for v in (2, 3))

    def power(x: Node, n: Node) -> Node:
        return x * x if ops.constant_value(n) == 2 else x * x * x

    assert _runs(power, *[(x, n) for x in leaves for n in (two, three)]) == 6


def test_bounds_of_positions() -> None:
    """Positions that are known to be right are not checked."""
    x = _leaf(0, 5)
    unknown = [_leaf(i, 3, dtype=dtypes.int64) for i in range(1, 5)]
    three = ops.iota(3)

    def pick(x: Node, index: Node) -> Node:
        return ops.gather(x, ops.checked(index, 5, 0, "index"), 0)

    calls = [(x, each) for each in unknown]
    calls[1:1] = [(x, three), (x, ops.reshape(three, (3,)))]
    assert _runs(pick, *calls) == 5
    assert by_recipe({}, None, pick, (x, three)).operands[1] is three


def test_widened_halves_give_their_halves_back() -> None:
    def narrow(x: Node) -> Node:
        return ops.composite.as_dtype(x, dtypes.float16)

    halves = [_leaf(i, 3, dtype=dtypes.float16) for i in range(4)]
    assert _runs(narrow, *[(ops.widened(h),) for h in halves]) == 4


def test_results_of_several_nodes() -> None:
    """None, an operand itself, and a node that depends on no operand."""
    a, b, c, d = (_leaf(i, 2) for i in range(4))
    zero = ops.constant(0, dtypes.float32)

    def build(x: Node, y: Node) -> tuple[Node | None, ...]:
        return None, y, ops.expand(zero, (4, 4)), x + y

    assert _runs(build, (a, b), (b, c), (c, d), (d, a)) == 3


def test_a_recipe_keeps_no_operand() -> None:
    """It refers to constants and stand-ins alone."""
    a, b = _leaf(0, 2), _leaf(1, 2)
    made = Recipe(lambda x, y: ops.exp(x) * y, (a, b))
    assert made.fixed == []
    assert [s.op for s, _ in made.steps] == [ops.exp, ops.mul]

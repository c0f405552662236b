"""Calls that are known by the instruction that others like them became: interning shows that they
become the node that their builder makes, as it is the same object."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from api_cases import every_case

import tilewright as tw
from tilewright.ir import ops
from tilewright.recording import calls, flushing, numbers
from tilewright.recording.building import built
from tilewright.recording.epoch import clock


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Compares each such node with what the builder makes; the nodes so far."""
    found: list[Any] = []
    known = calls.similar

    def similar(key: Any) -> Any:
        node = known(key)
        if node is not None:
            _, first, end, _, _, head, tail = clock.table.get(calls._alike(key))
            args = [*head, *key[first:end], *tail]
            assert calls._own(built(key[0], args), key[0], args) is node
            if node.requires_grad:
                build, before = node.memo["call"]
                assert calls._own(built(build, before), build, before) is node
            found.append(node)
        return node

    beside = calls.similar_to_number

    def similar_to_number(site: calls.Site, value: Any) -> Any:
        node = beside(site, value)
        if node is not None:
            build = site[0]
            assert calls._own(built(build, node.operands), build, node.operands) is node
            other, _ = node.operands if site[3] else node.operands[::-1]
            assert other.op is ops.scalar or ops.constant_value(other) == other.dtype.np.type(value)
            if node.requires_grad:
                assert node.memo["call"] == (build, node.operands)
            found.append(node)
        return node

    monkeypatch.setattr(calls, "similar", similar)
    monkeypatch.setattr(calls, "similar_to_number", similar_to_number)
    yield found
    flushing.drop()  # what a case recorded may fail when it is computed


CASES = list(every_case())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("grad", [False, True])
def test_nodes_are_those_of_the_builders(grad: bool, part: int, compared: list[Any]) -> None:
    tw.manual_seed(0)
    for _, call, shapes in CASES[part::8]:
        for _ in range(4):
            tensors = [(tw.rand(s) + 0.25).detach().requires_grad_(grad) for s in shapes]
            with contextlib.suppress(IndexError, RuntimeError, TypeError, ValueError):  # some raise
                call(tw, *tensors)
    assert len(compared) > 20


def test_a_chain_is_known(compared: list[Any]) -> None:
    x, c = tw.rand(7), tw.rand(7)
    for _ in range(10):
        x = 2 - x * c / 3
    assert len(compared) == 8 + 2 * 9


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.eq, operator.lt, operator.ge,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
def test_numbers_become_what_their_builder_makes(
    apply: Any, dtype: str, torch: Any, compared: list[Any]
) -> None:
    """Numbers of every kind and size, on both sides; values and gradients are PyTorch's."""
    values = [0.5, 2, 1, 3.0, -1.25, 1e30, 7, 0.0, -0.0, float("nan"), 0.5 + 1e-12, 2**40]
    start = np.linspace(0.5, 2, 5).astype(dtype)

    def results(lib: Any, number: Any, swapped: bool) -> Any:
        x = lib.tensor(start, requires_grad=True)
        y = apply(number, x) if swapped else apply(x, number)
        if y.requires_grad and apply not in (operator.floordiv, operator.mod):
            y.sum().backward()
        return [v.detach().numpy() for v in (y, x.grad) if v is not None]

    for number in (*values, *values[:3]):
        for swapped in (False, True):
            ours, theirs = (results(lib, number, swapped) for lib in (tw, torch))
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-6)
    assert apply is operator.pow or len(compared) >= 8


def test_operands_that_are_one_are_told_apart(compared: list[Any]) -> None:
    x, c = tw.rand(5), tw.rand(5)
    for _ in range(4):
        x = x * c
    before = len(compared)
    y = x * x
    assert before and len(compared) == before
    assert tw.allclose(y, x.square())


def test_integers_are_not_known_by_their_type(compared: list[Any]) -> None:
    """Functions ask for their bounds."""
    table = tw.rand(4, 3)
    for top in (1, 2, 3, 3):
        rows = tw.arange(top + 1)
        assert tw.equal(table[rows + 0], table[: top + 1])
    assert not [n for n in compared if any(o.type.is_integer for o in n.operands)]


def test_a_number_that_keeps_changing_becomes_an_input() -> None:
    """Also where the number was a constant at another place."""
    inputs = []
    for x in (tw.rand(6), tw.rand(6)):
        for step in range(1, 9):
            inputs.append((x * (step / 16))._node.operands[1].op is ops.scalar)
    assert inputs[3:8] == inputs[11:] == [True] * 5
    assert numbers.varies(("site",), 1.5) is False


def test_powers_that_are_other_ops_are_known(compared: list[Any]) -> None:
    """A root has one operand, and the square of a tensor two that are one."""
    for exponent in (0.5, 2, 1, 3):
        start = tw.linspace(1, 2, 5, dtype=tw.float64)
        x, expected = start, start.numpy()
        for _ in range(6):
            x, expected = x**exponent, expected**exponent
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12)
    assert [n for n in compared if n.op is ops.sqrt]

"""Groups that are alike are lowered and compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn as nn
from tilewright import recording
from tilewright.codegen import fusion
from tilewright.codegen.fusion import twins
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import LLVM, NUMPY
from tilewright.ir import ops
from tilewright.ir.dtype import float32, int64
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime import tiers


@pytest.fixture(autouse=True)
def fresh() -> Any:
    recording.clear_tables()
    yield
    recording.clear_tables()


def leaf(number: int, *shape: int, dtype: Any = float32) -> Node:
    return ops.leaf(number, Size(shape), dtype)


def block(x: Node, w: Node) -> Node:
    return x + ops.softmax(ops.matmul(ops.tanh(x), w), 1)


def compiled(root: Node, target: Any = LLVM) -> Program:
    return compile_graph(lower_graph([root]), target)


def counted(monkeypatch: Any) -> list[Any]:
    """Every form that is lowered from now on."""
    seen: list[Any] = []
    usual = fusion.Partition._template

    def template(self: Any, form: Any) -> Any:
        seen.append(form)
        return usual(self, form)

    monkeypatch.setattr(fusion.Partition, "_template", template)
    return seen


def test_layers_that_are_alike_are_lowered_once(monkeypatch: Any) -> None:
    lowered = counted(monkeypatch)
    x = leaf(0, 32, 16)
    for i in range(4):
        x = block(x, leaf(i + 1, 16, 16))
    program = compiled(x)
    first = len(lowered)
    for i in range(4, 12):
        x = block(x, leaf(i + 1, 16, 16))
    longer = compiled(x)
    assert len(longer.steps) > 2 * len(program.steps)
    assert first > 0 and len(lowered) == first
    kernels = {id(step.kernel) for step in longer.steps}
    assert len(kernels) <= len(program.steps)


def test_forms_that_differ_are_lowered_apart(monkeypatch: Any) -> None:
    lowered = counted(monkeypatch)
    makers = (
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x + x,
        lambda x, y: ops.sum(x + y, (0,)),
        lambda x, y: ops.sum(x + y, (1,)),
        lambda x, y: ops.permute(x, (1, 0)) + y,
    )
    for make in makers:
        compiled(make(leaf(0, 8, 8), leaf(1, 8, 8)))
    assert len({form.key for form in lowered}) == len(makers)
    count = len(lowered)
    compiled(leaf(0, 8, 9) + leaf(1, 8, 9))
    assert len(lowered) == count + 1


def test_the_order_of_operands_is_part_of_a_form() -> None:
    a, b = tw.tensor([1.0, 2.0]), tw.tensor([3.0, 5.0])
    assert (a - b).tolist() == [-2, -3]
    assert (b - a).tolist() == [2, 3]
    assert (a.exp() - b).tolist() == pytest.approx([np.e - 3, np.e**2 - 5])
    assert (a - b.exp()).tolist() == pytest.approx([1 - np.e**3, 2 - np.e**5])


def test_a_position_out_of_bounds_is_reported_with_its_own_line() -> None:
    table = tw.arange(4.0)
    messages = []
    for index in ([0, 9], [9, 0]):
        where = tw.tensor(index)
        if index[0]:
            row = table[where]
        else:
            row = table[where]
        with pytest.raises(IndexError) as error:
            row.tolist()
        messages.append(str(error.value))
    lines = [int(m.rsplit(":", 1)[1].rstrip(")")) for m in messages]
    assert lines[0] == lines[1] + 2


def test_updates_of_one_form_write_to_their_own_memory() -> None:
    tables = [tw.zeros(4, 3) for _ in range(3)]
    for i, table in enumerate(tables):
        table.index_add_(0, tw.tensor([i, i]), tw.full((2, 3), float(i + 1)))
    for i, table in enumerate(tables):
        expected = np.zeros((4, 3))
        expected[i] = 2 * (i + 1)
        np.testing.assert_array_equal(table.numpy(), expected)


def test_plans_share_what_was_compiled() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    x = tw.arange(18.0).reshape(3, 6)

    def forward() -> Any:
        with tw.no_grad():
            return model(x)  # one line, which stands in the kernels' notes

    forward().tolist()
    before = {id(launch) for p in tiers.plans() for s in p.segments for launch, *_ in s.launches}
    y = forward()
    z = y.sin()  # another plan: the same products, and something more
    z.tolist()
    assert y.shape == z.shape
    last = tiers.plans()[-1]
    launches = {id(launch) for s in last.segments for launch, *_ in s.launches}
    assert launches & before and launches - before


def test_forms_are_forgotten_with_the_nodes() -> None:
    (tw.ones(3) * 2).tolist()
    known = twins._outcomes
    assert any(known.values())
    recording.clear_tables()
    assert not any(known.values())


def test_a_form_seen_too_dear_is_made_where_it_pays(monkeypatch: Any) -> None:
    """The outcome of a trial is kept without its kernel, which is made again when it is wanted."""
    x, y = leaf(0, 64), leaf(1, 64, dtype=int64)
    root = ops.exp(x) + ops.cast(y, float32)
    program = compiled(root, NUMPY)
    known = twins.outcomes(NUMPY)
    for key, outcome in known.items():
        if isinstance(outcome, twins.Template):
            known[key] = outcome.cost
    again = compiled(root, NUMPY)
    assert len(again.steps) == len(program.steps)
    assert all(not isinstance(o, float) for o in known.values())

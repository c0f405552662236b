"""A whole training step of a transformer: its launches, its values, the time to compile it."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import check, random_leaves
from training_graphs import adam, gradients, leaf, parameter

from tilewright.codegen.fusion import Partition, twins
from tilewright.codegen.kernel import Bundle
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import float64, int64
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph


class _Parameters:
    def __init__(self) -> None:
        self.made: list[Node] = []

    def __call__(self, *shape: int) -> Node:
        self.made.append(parameter(2 + len(self.made), *shape))
        return self.made[-1]

    def linear(self, x: Node, outputs: int) -> Node:
        w = self(outputs, x.shape[-1])
        return ops.matmul(x, ops.transpose(w)) + self(outputs)

    def norm(self, x: Node) -> Node:
        return ops.layer_norm(x, 1, self(x.shape[-1]), self(x.shape[-1]), 1e-5)


def _block(x: Node, heads: int, new: _Parameters) -> Node:
    b, t, c = x.shape
    parts = new.linear(ops.reshape(new.norm(x), (b * t, c)), 3 * c)

    def head(i: int) -> Node:
        part = ops.slice_axis(parts, 1, i * c, (i + 1) * c)
        return ops.permute(ops.reshape(part, (b, t, heads, c // heads)), (0, 2, 1, 3))

    q, k, v = map(head, range(3))
    scores = ops.matmul(q, ops.transpose(k)) * (c // heads) ** -0.5
    seen = ops.ge(ops.reshape(ops.iota(t), (t, 1)), ops.iota(t))
    scores = ops.where(seen, scores, ops.constant(-1e9, x.dtype))
    y = ops.permute(ops.matmul(ops.softmax(scores, 3), v), (0, 2, 1, 3))
    x = x + ops.reshape(new.linear(ops.reshape(y, (b * t, c)), c), x.shape)
    h = ops.gelu(new.linear(ops.reshape(new.norm(x), (b * t, c)), 4 * c), "tanh")
    return x + ops.reshape(new.linear(h, c), x.shape)


def training_step(
    layers: int, batch: int, length: int, width: int, heads: int, words: int
) -> list[Node]:
    new = _Parameters()
    tokens, following = leaf(0, batch, length, dtype=int64), leaf(1, batch * length, dtype=int64)
    embedding = new(words, width)
    x = ops.gather(embedding, tokens, 0) + new(length, width)
    for _ in range(layers):
        x = _block(x, heads, new)
    x = ops.reshape(new.norm(x), (batch * length, width))
    loss = ops.cross_entropy(ops.matmul(x, ops.transpose(embedding)), following)
    return [loss, *adam(new.made, gradients(loss, new.made), 2 + len(new.made))]


@pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)
def test_a_training_step(target: Target) -> None:
    roots = training_step(1, batch=2, length=3, width=4, heads=2, words=7)
    values = random_leaves(lower_graph(roots))
    for node, value in values.items():
        if node.op.name == "scalar":
            values[node] = np.asarray(3.0 if node.attrs[0] == 101 else 0.1)
        elif node.dtype is float64:
            values[node] = np.abs(value)
    program = check(roots, target, values)
    assert len(program.steps) <= 44
    bundles = [s.kernel for s in program.steps if isinstance(s.kernel, Bundle)]
    assert max(len(b.members) for b in bundles) >= 14


@pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)
def test_work_to_compile(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four layers take little more than one: what is alike is lowered once."""
    counts = []
    usual = Partition._template

    def template(self: Partition, form: twins.Form) -> twins.Template:
        counts[-1] += 1
        return usual(self, form)

    monkeypatch.setattr(Partition, "_template", template)
    for layers in (1, 4):
        twins.clear()
        counts.append(0)
        roots = training_step(layers, batch=8, length=256, width=768, heads=12, words=50304)
        program = compile_graph(lower_graph(roots), target)
    # On a GPU 20 of them are second steps of sums that are cut to fill it.
    assert len(program.steps) <= (160 if target.split_products else 140)
    assert counts[1] < 1.5 * counts[0]

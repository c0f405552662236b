"""Attention: cases of shapes and masks, their graphs with gradients, their values by PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from launching import tiled

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import CUDA
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size


@dataclass(frozen=True)
class Case:
    """Shapes of q, k and v; mask: none, or its shape with the kind of its elements."""

    name: str
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    causal: bool = False
    mask: tuple[int, ...] | None = None
    boolean: bool = True
    scale: float | None = None
    cap: float = 0.0
    dropout: float = 0.0

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(len(self.name) + sum(self.q))
        batch = np.broadcast_shapes(self.q[:-2], self.k[:-2], self.v[:-2])
        made = {n: rng.standard_normal(getattr(self, n)) for n in "qkv"}
        made["g"] = rng.standard_normal((*batch, self.q[-2], self.v[-1]))
        if self.mask is not None:
            drawn = rng.standard_normal(self.mask)
            made["mask"] = drawn > 0.3 if self.boolean else drawn
        return made


def case(name: str, heads: Sequence[int], sizes: Sequence[int], **more: Any) -> Case:
    """sizes: L, S, E and Ev."""
    rows, keys, inner, outer = sizes
    lead = tuple(heads)
    return Case(name, (*lead, rows, inner), (*lead, keys, inner), (*lead, keys, outer), **more)


CASES = [
    case("one block", (2, 3), (16, 32, 16, 16)),
    case("tails", (2, 3), (70, 131, 20, 33)),
    case("many points", (3, 4), (70, 150, 20, 12)),
    case("many points, causal", (9,), (150, 140, 8, 8), causal=True),
    case("odd", (3,), (7, 5, 3, 9)),
    case("no batch", (), (40, 24, 8, 8)),
    case("many keys", (1,), (20, 700, 16, 24)),
    case("wide heads", (1, 2), (33, 40, 160, 256)),
    case("scaled", (2,), (9, 9, 4, 4), scale=-0.7),
    case("causal", (2,), (256, 256, 32, 32), causal=True),
    case("causal, more keys", (2,), (70, 150, 16, 16), causal=True),
    case("causal, more queries", (2,), (150, 70, 16, 16), causal=True),
    case("causal, one key block", (1,), (5, 7, 3, 2), causal=True),
    case("capped", (2, 2), (70, 140, 16, 16), cap=0.7),
    case("capped, below 0", (2,), (20, 40, 8, 8), scale=-0.7, cap=2.0),
    case("capped and causal", (2,), (150, 140, 16, 16), causal=True, cap=0.7),
    case("capped, causal, mask", (2,), (70, 70, 8, 8), causal=True, mask=(1, 70), cap=1.5),
    case("capped, float mask", (2,), (70, 140, 8, 8), mask=(70, 140), boolean=False, cap=1.5),
    case("bool mask", (2, 2), (70, 140, 16, 16), mask=(70, 140)),
    case("float mask", (2, 2), (70, 140, 16, 16), mask=(2, 1, 70, 140), boolean=False),
    case("padding", (3, 2), (20, 50, 8, 8), mask=(3, 1, 1, 50)),
    case("mask of queries", (3, 2), (20, 50, 8, 8), mask=(20, 1)),
    case("causal and mask", (2,), (70, 70, 8, 8), causal=True, mask=(1, 70)),
    Case("one head of keys", (2, 4, 30, 8), (2, 1, 40, 8), (40, 6)),
    Case("broadcast queries", (1, 30, 8), (3, 40, 8), (3, 40, 6)),
]


each_case = pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)


class Built:
    """A case as a graph: its leaves with their values, the result and the gradients."""

    def __init__(self, each: Case, dtype: DType = dt.float32, bias_grad: bool = False):
        arrays = each.arrays()
        self.values: dict[Node, Any] = {}
        self.leaves = {name: self._leaf(array, dtype) for name, array in arrays.items()}
        wanted = ["q", "k", "v", *(["mask"] if bias_grad else [])]
        inputs = [ops.variable(self.leaves[n], i) for i, n in enumerate(wanted)]
        mask = inputs[3] if bias_grad else self.leaves.get("mask")
        draw = {}
        if each.dropout:
            for i, name in enumerate(("seed", "offset")):
                draw[name] = ops.scalar(i, dt.int64)
                self.values[draw[name]] = 1234 + i
        self.y = ops.scaled_dot_product_attention(
            *inputs[:3],
            mask,
            causal=each.causal,
            scale=each.scale,
            cap=each.cap,
            dropout=each.dropout,
            **draw,
        )
        found = pullback({self.y: self.leaves["g"]}, inputs, create_graph=True)
        self.gradients = [found[x] for x in inputs]
        self.inputs = inputs

    def _leaf(self, array: np.ndarray, dtype: DType) -> Node:
        held = array.astype(dtype.np) if array.dtype.kind == "f" else array
        node = ops.leaf(len(self.values), Size(held.shape), dt.from_numpy(held.dtype))
        self.values[node] = held
        return node

    @property
    def roots(self) -> list[Node]:
        return [self.y, *self.gradients]


def expected(torch: Any, each: Case, keep: Any = 1.0, bias_grad: bool = False) -> list[Any]:
    """The definition in PyTorch, float64. keep: what dropout multiplies weights by."""
    arrays = {n: torch.tensor(a) for n, a in each.arrays().items()}
    wanted = [arrays[n] for n in ("q", "k", "v", *(["mask"] if bias_grad else []))]
    q, k, v, *_ = (x.requires_grad_() for x in wanted)
    scale = 1 / math.sqrt(q.shape[-1]) if each.scale is None else each.scale
    scores = q @ k.mT * scale
    if each.cap:
        scores = each.cap * torch.tanh(scores / each.cap)
    if each.causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if "mask" in arrays:
        mask = arrays["mask"]
        scores = scores.masked_fill(~mask, -math.inf) if each.boolean else scores + mask
    weights = torch.nn.functional.softmax(scores, -1)
    weights = weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    y = weights * keep @ v
    y.backward(arrays["g"])
    return [x.detach().numpy() for x in (y, *(x.grad for x in wanted))]


def passes(
    width: int,
    causal: bool,
    dtype: DType = dt.bfloat16,
    length: int = 1024,
    mask: bool = False,
    cap: float = 0.0,
    dropout: float = 0.0,
) -> tuple[Kernel, ...]:
    """The kernels forward, of the queries' gradient, and of the keys' and values'."""
    shape = Size((2, 16, length, width))
    q, k, v, g = (ops.leaf(i, shape, dtype) for i in range(4))
    inputs = [ops.variable(x, i) for i, x in enumerate((q, k, v))]
    seen = ops.leaf(4, Size((2, 1, 1, length)), dt.bool_) if mask else None
    draw = {n: ops.scalar(i, dt.int64) for i, n in enumerate(("seed", "offset"))} if dropout else {}
    y = ops.scaled_dot_product_attention(
        *inputs, seen, causal=causal, cap=cap, dropout=dropout, **draw
    )
    found = pullback({y: g}, inputs, create_graph=True)
    roots = [y, *(found[x] for x in inputs)]
    return tuple(tiled(compile_graph(lower_graph(roots), CUDA)))

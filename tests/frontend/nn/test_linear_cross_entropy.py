"""linear_cross_entropy beside PyTorch's, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn.functional as F
from tilewright.autograd import gradcheck, gradgradcheck
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM, NUMPY, Target
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops import linear_loss
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime import placement


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks also where there is little to save."""
    monkeypatch.setattr(linear_loss, "SMALL", 64)
    yield


def given(module: Any, rows: tuple[int, ...], classes: tuple[int, ...], dtype: str) -> list[Any]:
    """input, weight, bias of one dtype, the weights of classes, class indices."""
    rng = np.random.default_rng(4)
    shapes = ((*rows, 5), (*classes, 5), classes)
    floats = [rng.standard_normal(s) for s in shapes]
    found = [module.tensor(a).to(getattr(module, dtype)).requires_grad_() for a in floats]
    found.append(module.tensor(rng.random(classes[0])).to(getattr(module, dtype)))
    target = np.asarray(rng.integers(0, classes[0], (*rows, *classes[1:])))
    target.reshape(-1)[:1] = 2
    found.append(module.tensor(target))
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum", "label_smoothing": 0.1},
    {"reduction": "none", "ignore_index": 2},
    {"ignore_index": 2, "label_smoothing": 0.3},
]


def compare(
    torch: Any, rows: tuple[int, ...], classes: tuple[int, ...], dtype: str, tolerance: float,
    make: Callable[[Any, list[Any]], Any],
) -> None:  # fmt: skip
    found = []
    for module, kind in ((tw, dtype), (torch, "float64")):
        tensors = given(module, rows, classes, kind)
        loss = make(module.nn.functional.linear_cross_entropy, tensors)
        loss.sum().backward()
        grads = [t.grad for t in tensors[:3] if t.grad is not None]
        found.append([x.detach().double().numpy() for x in (loss, *grads)])
    for a, b in zip(*found, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_values_and_gradients(
    torch: Any, options: dict[str, Any], weighted: bool, biased: bool
) -> None:
    def make(f: Any, tensors: list[Any]) -> Any:
        x, w, b, c, t = tensors
        extra = {"weight": c} if weighted else {}
        return f(x, w, t, linear_bias=b if biased else None, **extra, **options)

    compare(torch, (23,), (11,), "float64", 1e-12, make)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 5e-2)])
def test_dtypes(torch: Any, dtype: str, tolerance: float) -> None:
    compare(torch, (23,), (11,), dtype, tolerance, lambda f, t: f(t[0], t[1], t[4]))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_one_row_and_a_loss_at_many_positions(torch: Any, reduction: str) -> None:
    def make(f: Any, t: list[Any]) -> Any:
        return f(t[0], t[1], t[4], linear_bias=t[2], reduction=reduction)

    compare(torch, (), (7,), "float64", 1e-12, make)
    compare(torch, (6,), (7, 3, 2), "float64", 1e-12, make)


def test_probabilities(torch: Any) -> None:
    q = np.random.default_rng(1).dirichlet(np.ones(7), 6)

    def make(f: Any, t: list[Any]) -> Any:
        return f(t[0], t[1], (tw if isinstance(t[0], tw.Tensor) else torch).tensor(q))

    compare(torch, (6,), (7,), "float64", 1e-12, make)


def test_no_row_counts(torch: Any) -> None:
    x, w = (tw.ones(*s).requires_grad_() for s in ((4, 5), (3, 5)))
    assert F.linear_cross_entropy(x, w, tw.full((4,), -100, dtype=tw.int64)).isnan()
    assert F.linear_cross_entropy(x[:0], w, tw.zeros(0, dtype=tw.int64), reduction="sum") == 0


def test_derivatives() -> None:
    x, w, b, c, t = given(tw, (7,), (5,), "float64")

    def f(x: Any, w: Any, b: Any) -> Any:
        return F.linear_cross_entropy(x, w, t, linear_bias=b, weight=c, label_smoothing=0.1)

    assert gradcheck(f, (x, w, b))
    assert gradgradcheck(f, (x, w, b))


def test_errors() -> None:
    x, w, _, _, t = given(tw, (7,), (5,), "float32")
    with pytest.raises(RuntimeError, match="in_features"):
        F.linear_cross_entropy(x, w[:, :3], t)
    with pytest.raises(RuntimeError, match="int64 class indices"):
        F.linear_cross_entropy(x, w, t[:3])
    with pytest.raises(RuntimeError, match="bias of shape"):
        F.linear_cross_entropy(x, w, t, linear_bias=w[:3, 0])
    with pytest.raises(ValueError, match="valid value for reduction"):
        F.linear_cross_entropy(x, w, t, reduction="most")


ROWS, WIDTH, CLASSES = 512, 64, 4096


def held(target: Target, gradients: bool) -> int:
    """Bytes of temporaries that a step takes."""
    shapes = ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,))
    leaves = [ops.leaf(i, Size(s), dt.float32) for i, s in enumerate(shapes)]
    inputs = [ops.variable(leaf, i) for i, leaf in enumerate(leaves)]
    classes = ops.leaf(3, Size((ROWS,)), dt.int64)
    loss = ops.linear_cross_entropy(inputs[0], inputs[1], classes, inputs[2])
    roots: list[Node] = [loss]
    if gradients:
        found = pullback({loss: ops.constant(1.0, dt.float32)}, inputs)
        roots += [found[x] for x in inputs]
    program = compile_graph(lower_graph(roots), target)
    kept = {*program.leaves.values(), *program.results}
    return placement.place(program, [i for i in range(len(program.slots)) if i not in kept])[1]


@pytest.mark.parametrize("target", [LLVM, NUMPY], ids=lambda t: t.name)
def test_the_scores_are_never_held(target: Target) -> None:
    """One block of scores forward; backward also its cotangent, and two sums of the weight's
    gradient where a block's is added."""
    scores, weight = ROWS * CLASSES * 4, CLASSES * WIDTH * 4
    block = scores // 16
    small = ROWS * WIDTH * 4 * 2
    assert held(target, False) <= block + small
    assert held(target, True) <= 2 * block + 3 * weight + small


def test_options_are_checked_and_change_nothing(torch: Any) -> None:
    x, w, _, _, t = given(tw, (7,), (5,), "float32")
    options = tw.nn.LinearCrossEntropyOptions(batch_chunk_size=2, acc_dtype=tw.float32)
    assert F.linear_cross_entropy(x, w, t, options=options) == F.linear_cross_entropy(x, w, t)
    assert repr(options) == repr(
        torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2, acc_dtype=torch.float32)
    )
    for wrong in (
        {"batch_chunk_size": 0},
        {"chunking_method": "aspect_ratio:0"},
        {"acc_policy": "fast"},
        {"acc_dtype": "int32"},
    ):
        for module in (tw, torch):
            fields = {k: getattr(module, v) if k == "acc_dtype" else v for k, v in wrong.items()}
            with pytest.raises(ValueError, match=next(iter(wrong))):
                module.nn.LinearCrossEntropyOptions(**fields)
    with pytest.raises(TypeError, match="expected nn"):
        F.linear_cross_entropy(x, w, t, options=3)

"""torch.masked.MaskedTensor beside PyTorch: printing, calls, reductions, gradients."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes

PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "printing": lambda m, d, k: (
        m.masked.masked_tensor(d.int(), k),
        m.masked.masked_tensor(d > 2, k),
        m.masked.masked_tensor(m.tensor(3.0), m.tensor(False)),
        m.masked.masked_tensor(d.view(1, 2, 3), k.view(1, 2, 3)),
    ),
    "parts": lambda m, d, k: (
        of(m, d, k).get_data(), of(m, d, k).get_mask(), of(m, d, k).to_tensor(-1.0),
    ),
    "unary": lambda m, d, k: [f(of(m, d, k)) for f in (m.sin, m.sqrt, m.neg, m.abs, m.floor)],
    "binary": lambda m, d, k: (
        of(m, d, k) + of(m, d, k), of(m, d, k) * 2, 2 * of(m, d, k), of(m, d, k) / d,
        of(m, d, k) ** 2, of(m, d, k) > 1, m.maximum(of(m, d, k), of(m, d, k)), of(m, d, k).add_(1),
    ),
    "sums": lambda m, d, k: [
        f(of(m, d, k), *dim) for f in (m.sum, m.mean, m.amax, m.amin) for dim in ((), (0,), (1,))
    ],
    "counts": lambda m, d, k: (
        of(m, d, k).prod(1), of(m, d, k).argmax(1), of(m, d, k).argmin(0), of(m, d, k).var(0),
        of(m, d, k).sum(1, keepdim=True), m.masked.masked_tensor(d > 2, k).all(0),
    ),
    "of none": lambda m, d, k: [
        getattr(of(m, d, k & False), f)() for f in ("sum", "mean", "amax", "prod")
    ],
    "softmax": lambda m, d, k: of(m, d, k).softmax(1),
    "views": lambda m, d, k: (
        of(m, d, k).view(3, 2), of(m, d, k).reshape(6), of(m, d, k).t(), of(m, d, k)[0],
        of(m, d, k)[:, 1], of(m, d, k).unsqueeze(0), of(m, d, k).expand(2, 2, 3),
        m.cat([of(m, d, k), of(m, d, k)]), m.stack([of(m, d, k), of(m, d, k)]),
        of(m, d, k).to(m.float64),
    ),
    "choice": lambda m, d, k: m.where(k, m.exp(of(m, d, k)), m.masked.masked_tensor(d, ~k)),
}  # fmt: skip


def of(m: Any, d: Any, k: Any) -> Any:
    return m.masked.masked_tensor(d, k)


def shown(program: Callable[..., Any], m: Any) -> str:
    data = m.arange(6.0).view(2, 3)
    mask = m.tensor([[True, False, True], [False, False, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(program(m, data, mask))


@pytest.mark.parametrize("name", PROGRAMS)
def test_masked_tensors_are_printed_as_pytorchs(torch: Any, name: str) -> None:
    assert shown(PROGRAMS[name], tw) == shown(PROGRAMS[name], torch)


@pytest.mark.filterwarnings("ignore")
def test_gradients_end_where_the_mask_does(torch: Any) -> None:
    """The gradient of exp(500) is infinite, and reaches nobody: PyTorch's tutorial."""

    def run(m: Any) -> tuple[str, Any]:
        leaf = m.masked.masked_tensor(m.ones(4), m.arange(4) > 1, requires_grad=True)
        (leaf * leaf).sum().backward()
        x = m.tensor([-10.0, -5, 0, 5, 10, 500], requires_grad=True)
        mask = x < 0
        low = m.masked.as_masked_tensor(x, mask)
        high = m.masked.as_masked_tensor(m.ones_like(x), ~mask)
        y = m.where(mask, m.exp(low), high)
        y.sum().backward()
        grad = x.grad
        return f"{leaf.grad} {y.detach()}", getattr(grad, "to_tensor", lambda _: grad)(0.0).tolist()

    (text, grads), (other_text, others) = run(tw), run(torch)
    assert text == other_text
    np.testing.assert_allclose(grads, others, 1e-6)


@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(torch: Any) -> None:
    for m in (tw, torch):
        make = m.masked.masked_tensor
        data, mask = m.ones(2, 2), m.tensor([[True, False], [True, True]])
        with pytest.raises(TypeError, match="mask must have dtype bool"):
            make(data, data)
        with pytest.raises(TypeError, match="data must be a Tensor"):
            make([1.0], mask)
        with pytest.raises(ValueError, match=r"must equal mask\.dim"):
            make(data, mask[0])
        with pytest.raises(ValueError, match="Input masks must match"):
            make(data, mask) + make(data, ~mask)
    with pytest.raises(NotImplementedError, match=r"matmul.*to_tensor\(value\)"):
        of(tw, tw.ones(2, 2), tw.ones(2, 2).bool()) @ tw.ones(2, 2)


def test_copies_are_masked_tensors() -> None:
    t = of(tw, tw.arange(3.0), tw.tensor([True, False, True])).requires_grad_()
    for made in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert tw.masked.is_masked_tensor(made) and made.requires_grad and str(made) == str(t)
    assert isinstance(t, tw.Tensor) and not tw.masked.is_masked_tensor(tw.ones(1))

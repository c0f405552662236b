"""Quantized tensors as users handle them, beside PyTorch: parts, orders, comparisons and writes,
channels, numbers that are none, and learned scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [
    pytest.mark.computes,
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]

DATA = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def _parts(value: Any) -> Any:
    """What a result is made of, to be compared."""
    if isinstance(value, (list, tuple)):
        return [_parts(each) for each in value]
    if getattr(value, "is_quantized", False):
        scheme = str(value.qscheme())
        if "channel" in scheme:
            of = value.q_per_channel_scales(), value.q_per_channel_zero_points()
            rest = [*(each.tolist() for each in of), value.q_per_channel_axis()]
        else:
            rest = [round(value.q_scale(), 7), value.q_zero_point()]
        return [str(value.dtype), scheme, value.int_repr().tolist(), *rest]
    return [str(value.dtype), value.tolist()] if hasattr(value, "tolist") else value


def _beside(torch: Any, program: Any) -> None:
    found, wanted = (_parts(program(m, m.tensor(DATA.tolist()))) for m in (tw, torch))
    assert found == wanted


CALLS = {
    "parts": lambda m, q: [q[0], q[1:3], q[:, 1], q[None], q[..., -1], q.T, q.mT, q[0, 0].item()],
    "rows": lambda m, q: [row for row in q],
    "places": lambda m, q: [
        q[m.tensor([0, 2])], q.index_select(1, m.tensor([1, 1])), q[q.dequantize() > 0],
        q.movedim(0, 1), q.swapaxes(0, 1), q.diagonal(), q.unfold(0, 2, 1), q.ravel(),
        q.tile(2, 1), q.repeat_interleave(2, 0), q.rot90(), *q.tensor_split(2), q.view_as(q),
        m.hstack([q, q]), m.vstack([q, q]),
    ],
    "orders": lambda m, q: [
        q.max(), m.min(q), *q.max(1), *m.min(q, 0), *q.topk(2), *m.sort(q, 0, True), q.std(1),
    ],
    "comparisons": lambda m, q: [q == q, q != 0.5, q < 0.3, q >= q.clone(), m.gt(q, m.ones(4, 6))],
    "shifts": lambda m, q: [
        m.nn.functional.pad(q, (1, 2)), m.nn.ReflectionPad1d(1)(q),
        m.nn.functional.pixel_shuffle(q.view(1, 4, 2, 3), 2),
        m.nn.functional.threshold(q, 0.1, 0.0),
        m.nn.functional.channel_shuffle(q.view(1, 4, 2, 3), 2), m.nn.functional.gelu(q),
    ],
    "facts": lambda m, q: [
        q.is_leaf, q.is_nested, q.is_cuda, q.nelement(), q.nbytes, q.itemsize, q.storage_offset(),
        q.is_complex(), q.is_floating_point(), q.type(), float(q[0, 0]), bool(q[0, 0]), len(q),
        q.to("cpu") is q, m.empty_like(q).q_scale(), m.empty_quantized([2], q).q_zero_point(),
        m._empty_affine_quantized([2, 3], scale=0.1, zero_point=4, dtype=m.quint8).q_scale(),
        m.dequantize([q, q]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["quint8", "qint8", "qint32"])
def test_calls(torch: Any, name: str, dtype: str) -> None:
    if name == "shifts" and dtype != "quint8":
        pytest.skip("PyTorch has these for quint8")
    _beside(
        torch,
        lambda m, x: CALLS[name](m, m.quantize_per_tensor(x, 0.05, 7, getattr(m, dtype))),
    )


def _writes(m: Any, x: Any) -> Any:
    q = m.quantize_per_tensor(x, 0.05, 7, m.quint8)
    row, states = q[1], []
    q[0] = 1.0
    q[2] = x[0] * 2
    row.fill_(0.32)  # a view: the tensor has it, too
    q.masked_fill_(q.dequantize() > 1.2, -0.1)
    q.index_put_((m.tensor([3]),), m.zeros(6))
    states += [q.clone(), row.clone(), q.masked_fill(q.dequantize() < 0, 0.2)]
    q.copy_(x.flip(0))
    states.append(q.clone())
    q.copy_(m.quantize_per_tensor(x, 0.1, 2, m.quint8))
    return [*states, q]


def _channels(m: Any, x: Any) -> Any:
    scale, zero = m.tensor([0.05, 0.1, 0.2, 0.25]), m.tensor([0, 1, 2, 3])
    q = m.quantize_per_channel(x, scale, zero, 0, m.quint8)
    parts = [q[1:], q[2], q.unsqueeze(0), q.contiguous(), q.view(4, 3, 2)]
    return [*parts, [p.dequantize() for p in parts]]


def _nothing(m: Any, x: Any) -> Any:
    x = x.clone()
    x[0] = float("nan")
    x[1] = float("inf")
    ones = m.ones(4)
    types = [getattr(m, name) for name in ("quint8", "qint8", "qint32")]
    return [
        *[m.quantize_per_tensor(x[:1], 0.1, 3, each) for each in types],
        *[m.quantize_per_tensor(x[1:], 0.1, 3, each) for each in types[:2]],
        *[m.quantize_per_channel(x[:1], ones[:1], m.tensor([3]), 0, each) for each in types],
        m.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 10),
        m.fake_quantize_per_channel_affine(
            x[[0, 2, 2, 3]], ones, m.zeros(4, dtype=m.int32), 0, 0, 10
        ),
    ]


@pytest.mark.parametrize("program", [_writes, _channels, _nothing])
def test_programs(torch: Any, program: Any) -> None:
    _beside(torch, program)


def test_channels_that_a_call_would_mix() -> None:
    q = tw.quantize_per_channel(
        tw.tensor(DATA), tw.arange(1.0, 5), tw.zeros(4, dtype=tw.int64), 0, tw.qint8
    )
    assert q.t().q_per_channel_axis() == 1
    assert q.t().dequantize().equal(q.dequantize().t())
    assert q[:, 1].dequantize().equal(q.dequantize()[:, 1])
    assert q[1:3, ::2].dequantize().equal(q.dequantize()[1:3, ::2])
    assert q.flatten().dequantize().equal(q.dequantize().flatten())
    with pytest.raises(RuntimeError, match="would mix them"):
        q.view(6, 4)


@pytest.mark.parametrize("rows", [False, True])
def test_learned_scales(torch: Any, rows: bool) -> None:
    found = []
    for m in (tw, torch):
        x = m.tensor(DATA.tolist(), requires_grad=True)
        scale = m.tensor([0.1, 0.2, 0.3, 0.02] if rows else [0.1], requires_grad=True)
        zero = m.tensor([3.4, 1.0, 2.0, 0.0] if rows else [3.0], requires_grad=True)
        kind = "channel" if rows else "tensor"
        call = getattr(m, f"_fake_quantize_learnable_per_{kind}_affine")
        y = call(x, scale, zero, *([0] if rows else []), 0, 10, 0.5)
        y.square().sum().backward()
        found.append([t.detach().numpy() for t in (y, x.grad, scale.grad, zero.grad)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


REFUSED = {
    "sum": (lambda m, q: q.sum(), NotImplementedError),
    "add": (lambda m, q: q + 1, RuntimeError),
    "product": (lambda m, q: q @ q.t(), RuntimeError),
    "array": (lambda m, q: q.numpy(), TypeError),
    "gradient": (lambda m, q: q.requires_grad_(), RuntimeError),
    "another type": (
        lambda m, q: q.copy_(m.quantize_per_tensor(q.dequantize(), 0.1, 0, m.qint8)),
        RuntimeError,
    ),
    "whole zero points": (
        lambda m, q: m.fake_quantize_per_channel_affine(
            q.dequantize(), m.ones(4), m.zeros(4, dtype=m.int64), 0, 0, 9
        ),
        RuntimeError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors(torch: Any, name: str) -> None:
    call, error = REFUSED[name]
    for m in (tw, torch):
        q = m.quantize_per_tensor(m.tensor(DATA.tolist()), 0.05, 7, m.quint8)
        with pytest.raises(error):
            call(m, q)

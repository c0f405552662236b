"""torch.ops.quantized beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(5)
ROWS, MORE, IMAGES = (
    RNG.normal(size=s).astype("float32") for s in ((3, 5, 8), (3, 5, 8), (2, 4, 6, 6))
)
LINE, CUBE = (RNG.normal(size=s).astype("float32") for s in ((2, 4, 9), (2, 4, 5, 5, 5)))
MATRIX, BIAS = RNG.normal(size=(6, 8)).astype("float32"), RNG.normal(size=6).astype("float32")
AT = (0.05, 100)


def q(m: Any, x: np.ndarray, scale: float = 0.03, zero: int = 120) -> Any:
    return m.quantize_per_tensor(m.tensor(x), scale, zero, m.quint8)


def weight(m: Any, x: np.ndarray) -> Any:
    """A weight of at most 60 steps: without VNNI PyTorch's products overflow beyond."""
    scales = np.abs(x).max(tuple(range(1, x.ndim))) / 60
    zeros = m.zeros(len(x), dtype=m.int64)
    return m.quantize_per_channel(m.tensor(x), m.tensor(scales).double(), zeros, 0, m.qint8)


def convolution(dims: int, name: str) -> Callable[[Any], Any]:
    x = {1: LINE, 2: IMAGES, 3: CUBE}[dims]
    w = np.random.default_rng(6).normal(size=(6, 2, *(3,) * dims)).astype("float32")

    def call(m: Any) -> Any:
        ops = m.ops.quantized
        ones = [1] * dims
        prepack = getattr(ops, f"conv{dims}d_prepack")
        pack = prepack(weight(m, w), m.tensor(BIAS), [2] * dims, ones, ones, 2)
        return getattr(ops, name)(q(m, x), pack, *AT)

    return call


def transposed(m: Any) -> Any:
    ops = m.ops.quantized
    w = np.random.default_rng(6).normal(size=(4, 3, 3, 3)).astype("float32")
    w = m.quantize_per_tensor(m.tensor(w), 0.05, 0, m.qint8)
    pack = ops.conv_transpose2d_prepack(w, m.tensor(BIAS[:3]), [2, 2], [1, 1], [1, 1], [1, 1], 1)
    return ops.conv_transpose2d(q(m, IMAGES), pack, *AT)


def vector(m: Any, n: int, seed: int = 0) -> Any:
    return m.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, n).astype("float32"))


CALLS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda m, name=name: getattr(m.ops.quantized, name)(
            q(m, ROWS), m.ops.quantized.linear_prepack(weight(m, MATRIX), m.tensor(BIAS)), *AT
        )
        for name in ("linear", "linear_relu")
    },
    "linear without a bias": lambda m: m.ops.quantized.linear(
        q(m, ROWS), m.ops.quantized.linear_prepack(weight(m, MATRIX)), *AT
    ),
    **{f"conv{d}d{e}": convolution(d, f"conv{d}d{e}") for d in (1, 2, 3) for e in ("", "_relu")},
    "conv_transpose2d": transposed,
    **{
        name: lambda m, name=name: getattr(m.ops.quantized, name)(q(m, ROWS), q(m, MORE, 0.02), *AT)
        for name in ("add", "add_relu", "mul", "mul_relu")
    },
    **{
        f"{name} {number}": lambda m, name=name, number=number: getattr(m.ops.quantized, name)(
            q(m, ROWS), number
        )
        for name in ("add", "add_scalar", "mul", "mul_scalar", "add_scalar_relu")
        for number in (0.7, -2.0)
    },
    "matmul": lambda m: m.ops.quantized.matmul(q(m, ROWS), q(m, MORE.swapaxes(1, 2).copy()), *AT),
    "cat": lambda m: m.ops.quantized.cat([q(m, ROWS), q(m, MORE, 0.02)], 1, *AT),
    "cat like the first": lambda m: m.ops.quantized.cat(
        [q(m, ROWS), q(m, MORE, 0.02)], 0, None, None
    ),
    "cat_relu": lambda m: m.ops.quantized.cat_relu([q(m, ROWS), q(m, MORE)], 2, *AT),
    **{
        name: lambda m, name=name: getattr(m.ops.quantized, name)(
            q(m, IMAGES), *(vector(m, 4, i) for i in range(4)), 1e-5, *AT
        )
        for name in ("batch_norm", "batch_norm2d", "batch_norm2d_relu")
    },
    "layer_norm": lambda m: m.ops.quantized.layer_norm(
        q(m, ROWS), [8], vector(m, 8), vector(m, 8, 1), 1e-5, *AT
    ),
    "group_norm": lambda m: m.ops.quantized.group_norm(
        q(m, IMAGES), 2, vector(m, 4), vector(m, 4, 1), 1e-5, *AT
    ),
    "instance_norm": lambda m: m.ops.quantized.instance_norm(
        q(m, IMAGES), vector(m, 4), vector(m, 4, 1), 1e-5, *AT
    ),
    "hardswish": lambda m: m.ops.quantized.hardswish(q(m, ROWS), *AT),
    "leaky_relu": lambda m: m.ops.quantized.leaky_relu(q(m, ROWS), 0.1, False, *AT),
    "sigmoid": lambda m: m.ops.quantized.sigmoid(q(m, ROWS), 1 / 256, 0),
    "elu": lambda m: m.ops.quantized.elu(q(m, ROWS), *AT, 0.8),
    "celu": lambda m: m.ops.quantized.celu(q(m, ROWS), *AT, 0.8),
    "softmax": lambda m: m.ops.quantized.softmax(q(m, ROWS), -1, 1 / 256, 0),
    "relu6": lambda m: m.ops.quantized.relu6(q(m, ROWS)),
    "threshold": lambda m: m.ops.quantized.threshold(q(m, ROWS), 0.1, -0.5),
}
ROUNDED_BY_FLOATS = {"layer_norm", "group_norm", "instance_norm", "softmax", "matmul"}
"""Their sums of floats may lie on the other side of half a step."""


@pytest.mark.parametrize("name", CALLS)
def test_operators(torch: Any, name: str) -> None:
    theirs, ours = (CALLS[name](m) for m in (torch, tw))
    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
    assert ours.q_scale() == pytest.approx(theirs.q_scale(), rel=1e-6)
    assert ours.q_zero_point() == theirs.q_zero_point()
    mine, wanted = (t.int_repr().numpy().astype(int) for t in (ours, theirs))
    assert np.abs(mine - wanted).max() <= int(name in ROUNDED_BY_FLOATS)
    assert (mine == wanted).mean() > 0.95
    assert len(np.unique(mine)) > 1


@pytest.mark.parametrize("reduce_range", [False, True])
def test_dynamic_products(torch: Any, reduce_range: bool) -> None:
    theirs, ours = (
        m.ops.quantized.linear_dynamic(
            m.tensor(ROWS),
            m.ops.quantized.linear_prepack(weight(m, MATRIX), m.tensor(BIAS)),
            reduce_range,
        ).numpy()
        for m in (torch, tw)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_packs(torch: Any) -> None:
    found = []
    for m in (torch, tw):
        ops = m.ops.quantized
        w = m.quantize_per_tensor(m.tensor(IMAGES), 0.05, 0, m.qint8)
        pack = ops.conv2d_prepack(w, m.tensor(BIAS[:2]), [2, 1], [1, 0], [1, 2], 1)
        back, bias = ops.conv2d_unpack(pack)
        found.append((
            back.int_repr().tolist(), bias.tolist(), pack.stride(), pack.padding(),
            pack.dilation(), pack.groups(), pack.transpose(), list(ops.conv2d_stride(pack)),
            ops.linear_unpack(ops.linear_prepack(weight(m, MATRIX)))[1],
        ))  # fmt: skip
    assert found[0] == found[1]


def test_a_layers_weight_is_a_pack() -> None:
    layer = tw.ao.nn.quantized.Linear(8, 6)
    layer.set_weight_bias(weight(tw, MATRIX), tw.tensor(BIAS))
    layer.scale, layer.zero_point = AT
    by_name = tw.ops.quantized.linear(q(tw, ROWS), layer._packed_params._packed_params, *AT)
    assert by_name.int_repr().tolist() == layer(q(tw, ROWS)).int_repr().tolist()


def test_what_operators_refuse() -> None:
    with pytest.raises(TypeError, match="scale"):
        tw.ops.quantized.add(q(tw, ROWS), q(tw, ROWS))
    with pytest.raises(NotImplementedError, match="expected weights"):
        tw.ops.quantized.linear(q(tw, ROWS), tw.ops.quantized.linear_prepack(q(tw, MATRIX)), *AT)
    with pytest.raises(AttributeError, match="no attribute"):
        tw.ops.quantized.no_such_operator  # noqa: B018

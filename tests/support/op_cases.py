"""One or more cases for every op record: the call, PyTorch's equivalent, and inputs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from graph_oracle import Case

from tilewright.ir import ctc, ops
from tilewright.ir import dtype as dtypes
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.ops.attention import attention_attrs, attention_total
from tilewright.ir.ops.normalization import layer_norm_weight_grad
from tilewright.ir.recurrence import cell_state, recurrence, recurrence_grad
from tilewright.ir.shape import Size

INF, NAN = math.inf, math.nan

# The cases. Elementwise records make theirs from their domain.

_RNG = np.random.default_rng(0)
_APART = np.random.default_rng(1)


def real(*shape: int, low: float = -3, high: float = 3) -> np.ndarray:
    return _RNG.uniform(low, high, size=shape)


def apart(*shape: int) -> np.ndarray:
    """As `real`, but what is drawn after it stays as it was: for new cases between others."""
    return _APART.uniform(-3, 3, size=shape)


def integers(low: int, high: int, *shape: int) -> np.ndarray:
    return _RNG.integers(low, high, size=shape)


def F(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function of torch.nn.functional with trailing arguments."""
    return lambda t, *xs: getattr(t.nn.functional, name)(*xs, *args, **kwargs)


def T(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function of torch with trailing arguments."""
    return lambda t, *xs: getattr(t, name)(*xs, *args, **kwargs)


NEAR = {"erfc_near": 1e-9}
"""The bounds, in float64 too, of records for results that are rounded to float32."""

UNARY = ((), (3, 4), (0, 2))
BINARY = (((3, 4), (4,)), ((), (2, 1)), ((2, 1), (1, 3)), ((0, 3), (3,)))
TORCH = {  # ops with another name in PyTorch
    "erfc_near": T("erfc"),
    "floor_divide": T("div", rounding_mode="floor"),
    "widened": T("clone"),  # for types that aren't halves
    "root": lambda t, x: t.where(x == 0, x * 0, t.where(x == 0, 1, x).sqrt()),
}
# Records of complex numbers, in test_complex.py and test_fft.py of tests/frontend/functions, and in
# tests/frontend/linalg.
COMPLEX = ("real", "imag", "complex", "conj", "modulus", "fft", "rfft", "irfft", "eig", "eigvals")
ELEMENTWISE = [
    op
    for op in REGISTRY.values()
    if op.kind is Kind.ELEMENTWISE
    and op.vjp
    and not op.params
    and op.name not in ("where", "zeta", "igamma", "igammac", *COMPLEX)
]


def _bias_grad(g: Node, shape: tuple[int, ...]) -> Node:
    return ops.linear_bias_grad(g, Size(shape))


def elementwise_cases() -> list[Case]:
    cases = []
    for op in ELEMENTWISE:
        binary = "{1}" in str(op.numpy)
        for shapes in BINARY if binary else [(s,) for s in UNARY]:
            inputs = tuple(real(*s, low=op.domain[0], high=op.domain[1]) for s in shapes)
            torch = TORCH.get(op.name, T(op.name))
            cases.append(Case(f"{op.name}{shapes}", op, torch, inputs))
    return cases


def case(name: str, f: Callable[..., Node], torch: Callable[..., Any], *inputs: Any) -> Case:
    return Case(name, f, torch, tuple(map(np.asarray, inputs)))


def act(name: str, torch: Callable[..., Any], *attrs: Any) -> Case:
    op = getattr(ops, name)
    return case(f"{name}{attrs}", lambda x: op(x, *attrs), torch, real(4, 5))


ACTIVATIONS = [
    act("gelu", F("gelu"), "none"),
    act("gelu", F("gelu", approximate="tanh"), "tanh"),
    act("silu", F("silu")),
    act("softplus", F("softplus", 2.0, 3.0), 2.0, 3.0),
    act("logsigmoid", F("logsigmoid")),
    act("mish", F("mish")),
    act("softsign", F("softsign")),
    act("tanhshrink", F("tanhshrink")),
    act("elu", F("elu", 0.7), 0.7),
    act("celu", F("celu", 0.5), 0.5),
    act("selu", F("selu")),
    act("leaky_relu", F("leaky_relu", 0.1), 0.1),
    act("hardtanh", F("hardtanh", -1.0, 2.0), -1.0, 2.0),
    act("relu6", F("relu6")),
    act("clamp", T("clamp", -1.0, 2.0), -1.0, 2.0),
    act("clamp", T("clamp", max=1.0), None, 1.0),
    act("clamp", T("clamp", min=1.0), 1.0, None),
    act("hardsigmoid", lambda t, x: t.nn.functional.relu6(x + 3) / 6),
    act("hardswish", F("hardswish")),
    act("threshold", F("threshold", 0.5, 7.0), 0.5, 7.0),
    act("hardshrink", F("hardshrink", 0.5), 0.5),
    act("softshrink", F("softshrink", 0.5), 0.5),
    act("turn", T("angle")),
]
NORMALIZED = [
    act("softmax", T("softmax", 1), 1),
    act("softmax", T("softmax", 0), 0),
    case("softmax 0-d", lambda x: ops.softmax(x, 0), T("softmax", 0), 0.3),
    case("softmax empty", lambda x: ops.softmax(x, 1), T("softmax", 1), real(2, 0)),
    act("log_softmax", T("log_softmax", 1), 1),
    act("logsumexp", T("logsumexp", (0, 1), True), (0, 1)),
    act("safe_softmax", T("softmax", 1), 1),
    act("glu", F("glu", 0), 0),
    case("at_least", ops.at_least, lambda t, x, b: t.clamp(x, b), real(2, 3), real(1, 3)),
    case("at_most", ops.at_most, lambda t, x, b: t.clamp(x, max=b), real(2, 3), np.array(0.3)),
    case(
        "within",
        ops.within,
        lambda t, x, b, c: t.clamp(x, b, c),
        *(apart(2, 3), np.array(-0.3), apart(1, 3)),
    ),
    case("prelu", ops.prelu, F("prelu"), real(2, 3), np.array(0.3)),
    case(
        "layer_norm",
        lambda x, w, b: ops.layer_norm(x, 2, w, b),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, (3, 4), w, b),
        *(real(2, 3, 4), real(3, 4), real(3, 4)),
    ),
    case(
        "rms_norm",
        lambda x, w: ops.rms_norm(x, 1, w),
        lambda t, x, w: t.nn.functional.rms_norm(x, (4,), w, 1e-5),
        *(real(2, 3, 4), real(4)),
    ),
    case(
        "group_norm",
        lambda x, w, b: ops.group_norm(x, 3, w, b),
        lambda t, x, w, b: t.nn.functional.group_norm(x, 3, w, b),
        *(real(2, 6, 3), real(6), real(6)),
    ),
    case(
        "instance_norm",
        lambda x, w: ops.instance_norm(x, w),
        lambda t, x, w: t.nn.functional.instance_norm(x, weight=w),
        *(real(2, 3, 5), real(3)),
    ),
    case(
        "batch_norm",
        ops.batch_norm,
        lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True),
        *(real(4, 3, 2), real(3), real(3)),
    ),
    case(
        "batch_norm_eval",
        ops.batch_norm_eval,
        lambda t, x, m, v, w, b: (x - m) / (v + 1e-5).sqrt() * w + b,
        *(real(4, 3), real(3), real(3, low=0.2), real(3), real(3)),
    ),
    case("batch_mean", ops.batch_mean, T("mean", (0, 2)), real(4, 3, 2)),
    case("batch_variance", ops.batch_variance, T("var", (0, 2)), real(4, 3, 2)),
]


def along(f: Callable[..., Node], *attrs: Any) -> Callable[[Node], Node]:
    return lambda x: f(x, *attrs)


POSITIVE = real(3, 4, 2, low=0.4, high=1.6)
ZEROS = np.array([[0.5, 0.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, -1.0, 2.0]])
REDUCED = [
    *(
        case(f"{name} {axes}", along(f, axes), T(name, axes, keepdim=True), real(3, 4, 2))
        for name, f in (("sum", ops.sum), ("mean", ops.mean), ("amax", ops.max), ("amin", ops.min))
        for axes in ((1,), (0, 2))
    ),
    case("sum 0-d", along(ops.sum, ()), T("sum"), 2.0),
    case("sum empty", along(ops.sum, (0,)), T("sum", 0, keepdim=True), real(0, 3)),
    *(
        case(
            f"{name} {axes} {correction}",
            lambda x, f=f, a=axes, n=count - correction: f(x, a, n),
            T(name, axes, correction=correction, keepdim=True),
            real(3, 4, 2),
        )
        for name, f in (("var", ops.variance), ("std", ops.deviation))
        for axes, count, correction in (((1,), 4, 1), ((0, 2), 6, 0))
    ),
    case("prod", along(ops.prod, (1,)), T("prod", 1, keepdim=True), POSITIVE),
    case("prod zeros", along(ops.prod, (1,)), T("prod", 1, keepdim=True), ZEROS),
    case(
        "first_max", along(ops.first_max, (1,)), lambda t, x: x.max(1, keepdim=True)[0], real(3, 4)
    ),
    case(
        "first_min", along(ops.first_min, (0,)), lambda t, x: x.min(0, keepdim=True)[0], real(3, 4)
    ),
    case("cumsum", along(ops.cumsum, 1), T("cumsum", 1), real(2, 4, 2)),
    case("cumsum empty", along(ops.cumsum, 0), T("cumsum", 0), real(0, 2)),
    case("cumprod", along(ops.cumprod, 1), T("cumprod", 1), POSITIVE),
    case("cumprod zeros", along(ops.cumprod, 1), T("cumprod", 1), ZEROS),
    case(
        "sort",
        lambda x: ops.take_along(x, ops.argsort(x, 1, True), 1),
        lambda t, x: x.sort(1, descending=True)[0],
        real(3, 5),
    ),
    case(
        "cummax",
        lambda x: ops.take_along(x, ops.cummax_index(x, 1), 1),
        lambda t, x: x.cummax(1)[0],
        real(3, 5),
    ),
    case("logcumsumexp", along(ops.logcumsumexp, 1), T("logcumsumexp", 1), real(2, 5)),
    case(
        "cummin",
        lambda x: ops.take_along(x, ops.cummin_index(x, 0), 0),
        lambda t, x: x.cummin(0)[0],
        real(5, 3),
    ),
]
INDEX = np.array([[0, 2], [1, 1], [3, 0]])
MOVED = [
    case("where", ops.where, T("where"), integers(0, 2, 3, 1) > 0, real(3, 4), real(4)),
    case("cast", along(ops.cast, dtypes.float64), lambda t, x: x, real(3)),
    case("reshape", along(ops.reshape, (4, 3)), T("reshape", (4, 3)), real(2, 6)),
    case("permute", along(ops.permute, (2, 0, 1)), T("permute", (2, 0, 1)), real(2, 3, 4)),
    case("expand", along(ops.expand, (2, 3, 4)), lambda t, x: x.expand(2, 3, 4), real(3, 1)),
    case(
        "slice", along(ops.slice_, (1, 0), (4, 5), (2, 2)), lambda t, x: x[1:4:2, :5:2], real(5, 6)
    ),
    case("slice empty", along(ops.slice_axis, 0, 2, 2), lambda t, x: x[2:2], real(5, 6)),
    case("pad", along(ops.pad, (1, 0), (2, 1)), F("pad", (0, 1, 1, 2)), real(2, 3)),
    case("flip", along(ops.flip, (0, 1)), T("flip", (0, 1)), real(2, 3)),
    case("cat", lambda *xs: ops.cat(xs, 1), lambda t, *xs: t.cat(xs, 1), real(2, 3), real(2, 1)),
    case(
        "windows",
        along(ops.windows, (1,), (3,), (2,), (1,)),
        lambda t, x: x.unfold(1, 3, 2),
        real(2, 8),
    ),
    case("diagonal", along(ops.diagonal, 1, 0, 1), T("diagonal", 1), real(3, 5)),
    case(
        "diagonal of a batch",
        along(ops.diagonal, -1, 2, 0),
        lambda t, x: t.diagonal(x, -1, 2, 0),
        real(3, 2, 4),
    ),
    case(
        "set_diagonal",
        lambda x, v: ops.set_diagonal(x, v, -1, 2, 0),
        lambda t, x, v: t.diagonal_scatter(x, v, -1, 2, 0),
        *(real(3, 2, 4), real(2, 3)),
    ),
    case(
        "strided",
        along(ops.strided, (2, 3), (5, 2), 1),
        lambda t, x: x.as_strided((2, 3), (5, 2), 1),
        real(3, 4),
    ),
    case(
        "set_strided",
        lambda x, v: ops.set_strided(x, v, (2, 3), (5, 2), 1),
        lambda t, x, v: (
            x.reshape(-1).index_put((t.tensor([[1, 3, 5], [6, 8, 10]]),), v).reshape(3, 4)
        ),
        *(real(3, 4), real(2, 3)),
    ),
    case(
        "gather",
        lambda x, i, j: ops.gather(x, i, j, 0),
        lambda t, x, i, j: x[i, j],
        *(real(4, 3, 2), integers(0, 4, 2, 1), integers(0, 3, 3)),
    ),
    case(
        "insertion",
        lambda x, y: (
            y * ops.cast(ops.insertion(ops.take_along(x, ops.argsort(x, 0), 0), y, False), y.dtype)
        ),
        lambda t, x, y: y * t.searchsorted(x.sort()[0].detach(), y.detach()),
        real(5),
        real(2, 3),
    ),
    case(
        "take_rows",
        ops.take_rows,
        lambda t, x, i: x[i],
        *(real(4, 3), integers(0, 4, 2, 3)),
    ),
    case(
        "sum_rows",
        lambda x, i: ops.sum_rows(x, i, 5),
        lambda t, x, i: t.zeros(5, 2, dtype=x.dtype).index_add(0, i, x),
        *(real(4, 2), integers(0, 5, 4)),
    ),
    case(
        "take_along",
        lambda x, i: ops.take_along(x, i, 1),
        lambda t, x, i: x.gather(1, i),
        *(real(3, 4), INDEX),
    ),
    case(
        "scatter add",
        lambda x, v, i: ops.scatter(x, v, i, 0, "add"),
        lambda t, x, v, i: x.index_put((i,), v, accumulate=True),
        *(real(4, 2), real(5, 2), integers(0, 4, 5)),
    ),
    case(
        "scatter set",
        lambda x, v, i: ops.scatter(x, v, i, 1, "set"),
        lambda t, x, v, i: x.index_copy(1, i, v),
        *(real(2, 4), real(2, 2), np.array([3, 0])),
    ),
    case(
        "put_along",
        lambda x, v, i: ops.put_along(x, v, i, 1, "add"),
        lambda t, x, v, i: x.scatter_add(1, i, v),
        *(real(3, 4), real(3, 2), INDEX),
    ),
]


def math_attention(t: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """scaled_dot_product_attention as a formula, because its fast kernels have no second
    derivative."""
    return t.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + mask, -1) @ v


CONV = ((2, 1), ((1, 1), (0, 2)), (1, 2), 2)  # stride, padding, dilation, groups
BELOW = np.tril(np.ones((3, 3))) > 0


def torch_conv(t: Any, x: Any, w: Any) -> Any:
    return t.nn.functional.conv2d(
        t.nn.functional.pad(x, (0, 2, 1, 1)), w, None, (2, 1), 0, (1, 2), 2
    )


CONTRACTED = [
    case("matmul", ops.matmul, T("matmul"), real(2, 1, 3, 4), real(5, 4, 2)),
    case("matmul_wide", ops.matmul_wide, T("matmul"), real(3, 4), real(4, 2)),
    case("matmul empty", ops.matmul, T("matmul"), real(3, 0), real(0, 2)),
    case(
        "conv", lambda x, w: ops.conv(x, w, *CONV), torch_conv, real(2, 4, 5, 6), real(6, 2, 3, 2)
    ),
    case("linear", ops.linear, F("linear"), real(2, 3, 4), real(5, 4), real(5)),
    case("linear 1-d", ops.linear, F("linear"), real(4), real(5, 4)),
    case("linear empty", ops.linear, F("linear"), real(0, 4), real(5, 4), real(5)),
    case("mv", ops.mv, T("mv"), real(3, 4), real(4)),
    case("dot", ops.dot, T("dot"), real(4), real(4)),
    case("outer", ops.outer, T("outer"), real(3), real(4)),
    case(
        "addmm",
        lambda c, a, b: ops.addmm(c, a, b, 0.5, 2.0),
        T("addmm", beta=0.5, alpha=2.0),
        *(real(5), real(3, 4), real(4, 5)),
    ),
    case("addmv", ops.addmv, T("addmv"), real(3), real(3, 4), real(4)),
    case("addr", ops.addr, T("addr"), real(3, 4), real(3), real(4)),
    case("baddbmm", ops.baddbmm, T("baddbmm"), real(2, 3, 5), real(2, 3, 4), real(2, 4, 5)),
    case("addbmm", ops.addbmm, T("addbmm"), real(3, 5), real(2, 3, 4), real(2, 4, 5)),
    case(
        "linear_input_grad",
        ops.linear_input_grad,
        lambda t, g, w: t.matmul(g, w),
        real(2, 3, 5),
        real(5, 4),
    ),
    case(
        "linear_weight_grad",
        ops.linear_weight_grad,
        lambda t, g, x: t.einsum("abo,abi->oi", g, x),
        real(2, 3, 5),
        real(2, 3, 4),
    ),
    case(
        "linear_weight_grad 1-d",
        ops.linear_weight_grad,
        lambda t, g, x: t.outer(g, x),
        real(5),
        real(4),
    ),
    *[
        case(
            f"linear_bias_grad{shape}",
            functools.partial(_bias_grad, shape=shape),
            lambda t, g, shape=shape: g.sum_to_size(shape) if shape else g.sum(),
            real(2, 70, 5),
        )
        for shape in ((5,), (1,), ())
    ],
    case("linear_bias_grad 1-d", functools.partial(_bias_grad, shape=(5,)), T("clone"), real(5)),
    case(
        "layer_norm_weight_grad",
        lambda g, x: layer_norm_weight_grad(g, x, 2, 1e-5),
        lambda t, g, x: (g * t.nn.functional.layer_norm(x, (3, 4))).sum(0),
        real(5, 3, 4),
        real(5, 3, 4),
    ),
    case(
        "descended",
        ops.descended,
        lambda t, x, g, rate: x - g * rate,
        real(3, 4),
        real(3, 4),
        real(),
    ),
    case(
        "running_mean",
        lambda m, x: ops.running_mean(m, x, 0.9),
        lambda t, m, x: t.lerp(m, x, 0.1),
        real(3, 4),
        real(3, 4),
    ),
    case(
        "running_square",
        lambda m, x: ops.running_square(m, x, 0.9),
        lambda t, m, x: 0.9 * m + 0.1 * x.square(),
        real(3, 4),
        real(3, 4),
    ),
    case(
        "adam_update",
        lambda *operands: ops.adam_update(*operands, 1e-3),
        lambda t, x, m, v, rate, root: x - rate * m / (v.sqrt() / root + 1e-3),
        real(3, 4),
        real(3, 4),
        real(3, 4, low=0.5, high=2),
        real(),
        real(low=0.5, high=1),
    ),
    case("bilinear", ops.bilinear, F("bilinear"), real(6, 3), real(6, 2), real(4, 3, 2), real(4)),
    case(
        "attention",
        ops.scaled_dot_product_attention,
        math_attention,
        *(real(2, 3, 4), real(2, 5, 4), real(2, 5, 2), real(3, 5)),
    ),
    case(
        "attention capped",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, scale=0.5, cap=0.75),
        lambda t, q, k, v: t.softmax(t.tanh(q @ k.mT / 1.5) * 0.75, -1) @ v,
        *(apart(2, 3, 4), apart(2, 5, 4), apart(2, 5, 2)),
    ),
    case(
        "attention total",
        lambda q, k, v: attention_total(q, k, v, *attention_attrs(0.5, cap=0.75)),
        lambda t, q, k, v: (
            t.logsumexp(t.tanh(q @ k.mT / 1.5) * 0.75, -1, keepdim=True) + 0 * v.sum()
        ),
        *(apart(2, 3, 4), apart(2, 5, 4), apart(2, 5, 2)),
    ),
    case(
        "attention causal",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, causal=True),
        lambda t, *qkv: math_attention(t, *qkv, t.where(t.tensor(BELOW), 0.0, -INF)),
        *(real(3, 4), real(3, 4), real(3, 2)),
    ),
]


def whole(*shape: int) -> np.ndarray:
    """Matrices far from singular, with distinct singular values."""
    m, n = shape[-2:]
    return real(*shape, low=-1, high=1) + 2 * np.eye(m, n) * np.arange(1, n + 1)


def definite(*shape: int) -> np.ndarray:
    a = real(*shape, low=-1, high=1)
    return a @ np.swapaxes(a, -2, -1) + np.diag(np.arange(1.0, shape[-1] + 1))


def size(op: Any) -> Callable[..., Node]:
    return lambda *args: ops.abs(op(*args))


def symmetric(op: Any, *rest: Any) -> Callable[..., Node]:
    """A routine of the symmetric part of a matrix."""
    return lambda a: op((a + ops.adjoint(a)) * 0.5, *rest)


def L(name: str, *args: Any, part: int | None = None, **kwargs: Any) -> Callable[..., Any]:
    """A function of torch.linalg; `part`: of its results."""

    def call(t: Any, *xs: Any) -> Any:
        found = getattr(t.linalg, name)(*xs, *args, **kwargs)
        if name in ("eigh", "svd"):  # the signs of vectors are anybody's choice
            return found[part].abs()
        return found if part is None else found[part]

    return call


def of_symmetric(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, a: f(t, (a + a.mT) / 2)


MATRICES = [
    case("cholesky", symmetric(ops.cholesky, 0), of_symmetric(L("cholesky")), definite(2, 3, 3)),
    case("inv", lambda a: ops.inv(a, 0), L("inv"), whole(2, 3, 3)),
    case("solve", lambda a, b: ops.solve(a, b, 0), L("solve"), whole(2, 3, 3), real(2, 3, 2)),
    case("det", lambda a: ops.det(a, 0), L("det"), whole(2, 3, 3)),
    case(
        "cofactors",
        lambda a: ops.cofactors(a, 0),
        lambda t, a: t.linalg.det(a)[:, None, None] * t.linalg.inv(a).mT,
        whole(2, 3, 3),
    ),
    case("slogdet", lambda a: ops.slogdet(a, 1), L("slogdet", part=1), whole(2, 3, 3)),
    case("slogdet sign", lambda a: ops.slogdet(a, 0), L("slogdet", part=0), whole(2, 3, 3)),
    case("matrix_exp", lambda a: ops.matrix_exp(a, 0), L("matrix_exp"), real(2, 3, 3, high=1)),
    *(
        case(
            f"solve_triangular {up} {unit}",
            lambda a, b, up=up, unit=unit: ops.solve_triangular(a, b, up, unit),
            L("solve_triangular", upper=up, unitriangular=unit),
            *(whole(2, 3, 3), real(2, 3, 2)),
        )
        for up in (False, True)
        for unit in (False, True)
    ),
    *(
        case(f"qr {i} {shape}", lambda a, i=i: ops.qr(a, False, i), L("qr", part=i), whole(*shape))
        for i in (0, 1)
        for shape in ((3, 3), (2, 4, 3), (2, 4))
    ),
    *(
        case(f"lu {shape}", lambda a: ops.lu(a, 0), L("lu_factor", part=0), whole(*shape))
        for shape in ((3, 3), (2, 4, 3), (2, 4))
    ),
    *(
        case(
            f"eigh {i}",
            symmetric(size(ops.eigh), True, i),
            of_symmetric(L("eigh", part=i)),
            definite(2, 3, 3),
        )
        for i in (0, 1)
    ),
    case(
        "cholesky_inverse",
        lambda a: ops.cholesky_inverse(ops.lower(a), False),
        lambda t, a: t.cholesky_inverse(a.tril()),
        definite(2, 3, 3),
    ),
    case(
        "cholesky_solve",
        lambda a, b: ops.cholesky_solve(b, ops.upper(a), True),
        lambda t, a, b: t.cholesky_solve(b, a.triu(), True),
        definite(2, 3, 3),
        real(2, 3, 2),
    ),
    *(
        case(
            f"svd {i} {full} {shape}",
            lambda a, i=i, full=full: size(ops.svd)(a, full, i),
            L("svd", full, part=i),
            whole(*shape),
        )
        for i, full in ((0, False), (1, True), (2, False))
        for shape in ((3, 3), (4, 3), (2, 2, 4))
    ),
    *(
        case(
            f"pinv {shape}",
            lambda a: ops.pinv(a, ops.constant(0.0, a.dtype), ops.constant(1e-7, a.dtype), False),
            L("pinv", rtol=1e-7),
            whole(*shape),
        )
        for shape in ((3, 2), (2, 3, 4))
    ),
    *(
        case(
            f"lstsq {shape} {driver}",
            lambda a, b, driver=driver: ops.lstsq(a, b, 1e-7, driver, 0),
            L("lstsq", rcond=1e-7, driver=driver, part=0),
            whole(*shape),
            real(*shape[:-1], 2),
        )
        for shape in ((4, 3), (2, 3, 5))
        for driver in ("gels", "gelsy", "gelsd", "gelss")
    ),
]

ENDS = np.array([2, 2, 6], np.int32)  # of groups among 7


def torch_groups(t: Any, a: Any, b: Any, ends: Any) -> Any:
    """`grouped_mm` with zeros behind the last group. PyTorch's own doesn't take float64."""
    cuts = [0, *map(int, ends)]
    pairs = list(itertools.pairwise(cuts))
    if a.dim() == b.dim():
        return t.stack([a[:, i:j] @ b[i:j] for i, j in pairs])
    if a.dim() == 3:
        return torch_groups(t, b.T, a.mT, ends).T
    rest = t.zeros(len(a) - cuts[-1], b.shape[2], dtype=a.dtype)
    return t.cat([*(a[i:j] @ w for (i, j), w in zip(pairs, b)), rest])


GROUPED = [
    case("grouped_mm rows", ops.grouped_mm, torch_groups, real(7, 3), real(3, 3, 4), ENDS),
    case("grouped_mm columns", ops.grouped_mm, torch_groups, real(3, 4, 3), real(3, 7), ENDS),
    case("grouped_mm sums", ops.grouped_mm, torch_groups, real(3, 7), real(7, 4), ENDS),
    case("grouped_mm flat", ops.grouped_mm, torch_groups, real(7, 3), real(3, 3, 1), ENDS),
]

# Kernel (3, 2), stride (2, 3), padding (1, 0) with the addition of ceil_mode.
POOL = ((3, 2), (2, 3), ((1, 1), (0, 0)))
CEIL = (*POOL[:2], tuple(map(ops.pool_padding, (6, 7), *POOL[:2], (1, 0), (1, 1), (True, True))))


def pool(name: str, op: Callable[..., Node], *attrs: Any) -> Callable[..., Case]:
    return lambda torch: case(name, lambda x: op(x, *attrs), torch, real(2, 2, 6, 7))


POOLED = [
    pool("max_pool", ops.max_pool, *POOL, (1, 2))(F("max_pool2d", (3, 2), (2, 3), (1, 0), (1, 2))),
    pool("max_pool ceil", ops.max_pool, *CEIL, (1, 1))(
        F("max_pool2d", (3, 2), (2, 3), (1, 0), 1, True)
    ),
    pool("avg_pool", ops.avg_pool, *POOL, True, 0)(F("avg_pool2d", (3, 2), (2, 3), (1, 0))),
    pool("avg_pool ceil", ops.avg_pool, *CEIL, True, 0)(
        F("avg_pool2d", (3, 2), (2, 3), (1, 0), True)
    ),
    pool("avg_pool inner", ops.avg_pool, *CEIL, False, 0)(
        F("avg_pool2d", (3, 2), (2, 3), (1, 0), True, False)
    ),
    pool("avg_pool divisor", ops.avg_pool, *POOL, True, 5)(
        F("avg_pool2d", (3, 2), (2, 3), (1, 0), divisor_override=5)
    ),
    pool("avg_pool gaps", ops.avg_pool, (1, 2), (2, 3), ((0, 0), (1, 1)), True, 0)(
        F("avg_pool2d", (1, 2), (2, 3), (0, 1))
    ),
    pool("adaptive_avg_pool", ops.adaptive_avg_pool, (4, 7))(F("adaptive_avg_pool2d", (4, 7))),
    pool("adaptive_avg_pool tiles", ops.adaptive_avg_pool, (3, 1))(
        F("adaptive_avg_pool2d", (3, 1))
    ),
    pool("adaptive_max_pool", ops.adaptive_max_pool, (4, 3))(F("adaptive_max_pool2d", (4, 3))),
]


def loss(
    name: str,
    *attrs: Any,
    torch: Callable[..., Any] | None = None,
    inputs: Any = None,
    **named: Any,
) -> list[Case]:
    """The loss `name` with each reduction."""
    op = getattr(ops, name)
    data = inputs or (real(4, 3), real(4, 3))
    return [
        case(
            f"{name}{attrs} {reduction}",
            functools.partial(lambda *xs, r: op(*xs, *attrs, r), r=reduction),
            torch or F(name, reduction=reduction, **named),
            *data,
        )
        for reduction in ("none", "mean", "sum")
    ]


PROBABILITIES = (real(4, 3, low=0.1, high=0.9), real(4, 3, low=0.1, high=0.9))
CLASSES = np.array([[0, 2], [-1, 4], [3, 3]])
WEIGHT = real(5, low=0.2, high=1.5)


WEIGHT_LEAF = ops.leaf("weight", Size((5,)), dtypes.float64)


def weight_like(x: Node) -> Node:
    """WEIGHT in the dtype of `x`, without a gradient."""
    return ops.cast(WEIGHT_LEAF, x.dtype)


def classified(name: str, *soft: np.ndarray, **named: Any) -> list[Case]:
    """nll_loss or cross_entropy of scores [3, 5, 2] with and without weights, each reduction."""
    op, out = getattr(ops, name), []
    for reduction in ("none", "mean", "sum"):
        for weight in (None, WEIGHT):
            more = {**named, "reduction": reduction} | ({} if soft else {"ignore_index": -1})

            def f(x: Node, target: Node, weight: Any = weight, more: Any = more) -> Node:
                return op(x, target, None if weight is None else weight_like(x), **more)

            def torch(t: Any, x: Any, target: Any, weight: Any = weight, more: Any = more) -> Any:
                w = None if weight is None else t.tensor(weight)
                return getattr(t.nn.functional, name)(x, target, w, **more)

            label = f"{name} {len(soft)} {named} {reduction} {weight is not None}"
            out.append(case(label, f, torch, real(3, 5, 2), *(soft or (CLASSES,))))
    return out


LOSSES = [
    *loss("mse_loss"),
    *loss("l1_loss"),
    *loss("smooth_l1_loss", 0.7, beta=0.7),
    *loss("smooth_l1_loss", 0.0, beta=0.0),
    *loss("huber_loss", 0.7, delta=0.7),
    *loss("binary_cross_entropy", None, inputs=PROBABILITIES),
    *loss("binary_cross_entropy_with_logits", None, None),
    *loss("kl_div", False, inputs=PROBABILITIES),
    *loss("kl_div", True, log_target=True),
    *classified("nll_loss"),
    *classified("cross_entropy"),
    *classified("cross_entropy", label_smoothing=0.2),
    *classified("cross_entropy", real(3, 5, 2, low=0), label_smoothing=0.2),
    case(
        "pos_weight",
        lambda x, y: ops.binary_cross_entropy_with_logits(x, y, None, weight_like(x), "sum"),
        lambda t, x, y: t.nn.functional.binary_cross_entropy_with_logits(
            x, y, pos_weight=t.tensor(WEIGHT), reduction="sum"
        ),
        *(real(4, 5), real(4, 5, low=0.1, high=0.9)),
    ),
    case("scores 1-d", ops.cross_entropy, F("cross_entropy"), real(5), np.array(2)),
]

SPECIAL = [
    case(
        name,
        getattr(ops, name),
        lambda t, *xs, name=name: getattr(t.special, name)(*xs),
        *(real(4, 5, low=low, high=high) for _ in range(count)),
    )
    for name, low, high, count in (
        ("i0", -12, 12, 1),
        ("i0e", -12, 12, 1),
        ("i1", -12, 12, 1),
        ("i1e", -12, 12, 1),
        ("erfcx", -2, 12, 1),
        ("log_ndtr", -8, 4, 1),
        ("ndtr", -4, 4, 1),
        ("ndtri", 0.01, 0.99, 1),
        ("entr", 0.1, 4, 1),
        ("xlogy", 0.1, 4, 2),
        ("xlog1py", 0.1, 4, 2),
    )
]
TRIGAMMA = case(
    "trigamma",
    ops.trigamma_above,
    lambda t, x: t.polygamma(1, x),
    real(4, 5, low=0.1, high=30),
)
ZETA = case(
    "polygamma",
    lambda x: ops.polygamma(2, x),
    lambda t, x: t.polygamma(2, x),
    real(3, 4, low=0.3, high=5),
)


def torch_step(cell: str, x: Any, z: Any, *states: Any) -> list[Any]:
    """The new states of a cell by PyTorch, of its products with the input and the first state."""
    if cell == "lstm":
        a, f, g, o = (x + z).chunk(4, 1)
        c = f.sigmoid() * states[1] + a.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]
    if cell == "gru":
        (xr, xu, xn), (zr, zu, zn) = x.chunk(3, 1), z.chunk(3, 1)
        u = (xu + zu).sigmoid()
        return [(1 - u) * (xn + (xr + zr).sigmoid() * zn).tanh() + u * states[0]]
    return [(x + z).tanh()]


def one_step(cell: str, gates: int, count: int, index: int) -> Case:
    width = 4
    return case(
        f"cell_state {cell} {index}",
        lambda *operands: cell_state(*operands, cell, index),
        lambda t, *operands: torch_step(cell, *operands)[index],
        *(real(3, gates * width), real(3, gates * width)),
        *(real(3, width) for _ in range(count)),
    )


def layer(torch: bool, cell: str, reverse: bool, x: Any, valid: Any, states: Any, w: Any) -> Any:
    """A recurrent layer, ours as one node or step by step with PyTorch."""
    if not torch:
        y, last = recurrence(cell, x, states, w, valid=valid, reverse=reverse)
        return ops.cat([ops.reshape(n, (-1,)) for n in (y, *last)], 0)
    import torch as t

    rows: list[Any] = [None] * len(x)
    for i in range(len(x))[:: -1 if reverse else 1]:
        new = torch_step(cell, x[i], states[0] @ w, *states)
        if valid is not None:
            new = [t.where(valid[i], a, b) for a, b in zip(new, states)]
        rows[i], states = new[0], new
    return t.cat([n.reshape(-1) for n in (t.stack(rows), *states)])


def recurrent(cell: str, gates: int, count: int, reverse: bool, *valid: np.ndarray) -> Case:
    def f(torch: bool, x: Any, w: Any, *rest: Any) -> Any:
        return layer(torch, cell, reverse, x, rest[count] if valid else None, rest[:count], w)

    return case(
        f"recurrence {cell}",
        functools.partial(f, False),
        lambda t, *xs: f(True, *xs),
        *(real(3, 2, gates * 4), real(4, gates * 4), *(real(2, 4) for _ in range(count)), *valid),
    )


def layer_gradient(above: Node, before: Node, kept: Node, carried: Node, w: Node) -> Node:
    """The backward pass of a tanh layer: recurrence_grad itself, with flat results."""
    return recurrence_grad(above, before, kept, carried, w, 3, 1, True, "rnn_tanh")


def torch_layer_gradient(t: Any, above: Any, before: Any, kept: Any, carried: Any, w: Any) -> Any:
    states, products = [], []
    for i in reversed(range(len(above))):
        products.insert(0, (above[i] + carried) * (1 - kept[i] ** 2))
        carried = products[0] @ w
        states.insert(0, carried)
    return t.stack(states + products).reshape(-1)


VALID = np.array([True, True, True, False, True, False]).reshape(3, 2, 1)
RECURRENT = [
    recurrent("lstm", 4, 2, False),
    recurrent("gru", 3, 1, True, VALID),
    recurrent("rnn_tanh", 1, 1, False, VALID),
    one_step("lstm", 4, 2, 0),
    one_step("lstm", 4, 2, 1),
    one_step("gru", 3, 1, 0),
    one_step("rnn_tanh", 1, 1, 0),
    case(
        "recurrence_grad",
        layer_gradient,
        torch_layer_gradient,
        *(real(3, 2, 4), real(3, 2, 4), real(3, 2, 4), real(2, 4), real(4, 4)),
    ),
]


LOW = -1e4


def paths(t: Any, scores: Any, entry: Any, skips: Any) -> Any:
    """The forward variables of CTC, step by step with PyTorch. LOW stands for -inf, at which its
    second derivatives are NaN."""
    before = scores[0] * 0 + LOW
    out = []
    for score, start in zip(scores, entry, strict=True):
        nothing = before[:, :1] * 0 + LOW
        one = t.cat([nothing, before[:, :-1]], 1)
        two = t.where(skips, t.cat([nothing, one[:, :-1]], 1), LOW)
        before = t.logsumexp(t.stack([before, one, two, t.where(start, 0.0, LOW)]), 0) + score
        out.append(before)
    return t.stack(out)


def path_gradient(*operands: Node) -> Node:
    """The backward pass of CTC: its loop itself, with a flat result."""
    return ctc.reached_grad(*operands, 4, 1, True)


def torch_path_gradient(t: Any, above: Any, now: Any, later: Any, score: Any, *rest: Any) -> Any:
    gains, skips = rest
    out = []
    for i in reversed(range(len(above))):
        part = (score[i] - later[i]).exp()
        total = above[i]
        for by, each in ((0, part), (1, part), (2, t.where(skips, part, 0.0))):
            moved = t.nn.functional.pad((each * gains)[:, by:], (0, by))
            total = total + now[i].exp() * moved
        gains = total
        out.insert(0, total)
    return t.stack(out).reshape(-1)


SKIPS = np.array([[False, True, False, True, False], [False, True, False, False, False]])
CTC = [
    case(
        "ctc",
        ctc.reached,
        paths,
        *(real(3, 2, 5), np.ones((3, 2, 5), bool), SKIPS),  # no state is out of reach
    ),
    case(
        "ctc_grad",
        path_gradient,
        torch_path_gradient,
        *(*(real(3, 2, 5, low=-2, high=0) for _ in range(4)), real(2, 5), SKIPS),
    ),
]
COMPOSED = [
    *ACTIVATIONS,
    *NORMALIZED,
    *CONTRACTED[3:],
    *GROUPED,
    *POOLED,
    *LOSSES,
    *RECURRENT,
    *SPECIAL,
    *CTC,
]
CASES = [*elementwise_cases(), *REDUCED, *MOVED, *CONTRACTED[:3], ZETA, *COMPOSED, *MATRICES]

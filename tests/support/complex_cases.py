"""Calls on complex tensors x, y [3, 4] and a real one r [3, 4]: name -> call(module, x, y, r)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]

HOLOMORPHIC = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh sigmoid neg square"
).split()


def _set_parts(m: Any, x: Any, y: Any, r: Any) -> Any:
    z = x.clone()
    z.real.mul_(r)
    z.imag = r * 2
    return z * y


SMOOTH: dict[str, Call] = {
    "mul": lambda m, x, y, r: x * y,
    "div": lambda m, x, y, r: x / y,
    "pow": lambda m, x, y, r: x**y,
    "cube": lambda m, x, y, r: x**3,
    "power of a number": lambda m, x, y, r: 2**x,
    "with real": lambda m, x, y, r: x * r + r,
    "real less complex": lambda m, x, y, r: r - x,
    "with a number": lambda m, x, y, r: r * (1 + 2j),
    "abs": lambda m, x, y, r: x.abs(),
    "angle": lambda m, x, y, r: x.angle(),
    "real, imag": lambda m, x, y, r: x.real * y.imag,
    "conj": lambda m, x, y, r: x.conj() * y,
    "sgn": lambda m, x, y, r: x.sgn(),
    "complex": lambda m, x, y, r: m.complex(r, r * 2) * x,
    "polar": lambda m, x, y, r: m.polar(r.abs(), r) * x,
    "view_as_real": lambda m, x, y, r: m.view_as_real(x) * m.view_as_real(y),
    "view_as_complex": lambda m, x, y, r: m.view_as_complex(m.view_as_real(x).clone() * 2),
    "matmul": lambda m, x, y, r: x @ y.mH,
    "sum": lambda m, x, y, r: (x * y).sum(0),
    "mean": lambda m, x, y, r: x.mean(1),
    "prod": lambda m, x, y, r: x.prod(1),
    "prod of rows": lambda m, x, y, r: m.cat([x / abs(x)] * 180, 1).prod(1),
    "prod of all": lambda m, x, y, r: m.cat([x / abs(x), y / abs(y)], 1).repeat(10, 10).prod(),
    "cumsum": lambda m, x, y, r: x.cumsum(0),
    "cumprod": lambda m, x, y, r: x.cumprod(1),
    "std": lambda m, x, y, r: x.std(),
    "norm": lambda m, x, y, r: x.norm(),
    "norm 1": lambda m, x, y, r: x.norm(1),
    "where": lambda m, x, y, r: m.where(r > 0, x, y),
    "to complex": lambda m, x, y, r: r.to(x.dtype) * x,
    "to real": lambda m, x, y, r: x.to(r.dtype),
    "index": lambda m, x, y, r: x[:, 1:] * y[:, [0, 0, 1]],
    "cat": lambda m, x, y, r: m.cat([x, y.conj()]),
    "einsum": lambda m, x, y, r: m.einsum("ij,kj->ik", x, y),
    "linear": lambda m, x, y, r: m.nn.functional.linear(x, y),
    "conv1d": lambda m, x, y, r: m.nn.functional.conv1d(x[None], y[:, :3, None]),
    "logsumexp": lambda m, x, y, r: m.logsumexp(x, 1),
    "vdot": lambda m, x, y, r: m.vdot(x[0], y[0]),
    "set parts": _set_parts,
    "expand": lambda m, x, y, r: x[:1] * y,
    "addcmul": lambda m, x, y, r: m.addcmul(x, x, y, value=1 + 1j),
    "addmm": lambda m, x, y, r: m.addmm(x[:, :3], x, y.T, beta=1j, alpha=2 - 1j),
    "lerp": lambda m, x, y, r: m.lerp(x, y, y),
} | {name: lambda m, x, y, r, name=name: getattr(m, name)(x) for name in HOLOMORPHIC}

VALUES: dict[str, Call] = {
    "eq": lambda m, x, y, r: x == y,
    "isreal": lambda m, x, y, r: m.isreal(m.complex(r, r.clamp(min=0))),
    "is_complex": lambda m, x, y, r: (m.is_complex(x), x.is_complex(), m.is_complex(r)),
    "isnan": lambda m, x, y, r: (x / 0).isnan(),
    "isfinite": lambda m, x, y, r: (x / 0).isfinite(),
    "any, all": lambda m, x, y, r: (x.any(), x.all(), x.count_nonzero()),
    "resolved": lambda m, x, y, r: x.conj().resolve_conj().resolve_neg(),
    "pending": lambda m, x, y, r: (x.is_conj(), x.is_neg()),
    "cfloat": lambda m, x, y, r: (x.cfloat(), r.cdouble()),
    "conj_physical": lambda m, x, y, r: (m.conj_physical(x), r.conj(), r.real),
    "angle of real": lambda m, x, y, r: (r.angle(), (r > 0).angle(), r.sgn()),
    "view": lambda m, x, y, r: (x.view(r.dtype), r.view(x.dtype)),
    "cov": lambda m, x, y, r: (m.cov(x), m.corrcoef(x)),
    "sort of scatter": lambda m, x, y, r: x.index_add(0, m.tensor([0, 0, 2]), y),
    "tril": lambda m, x, y, r: m.tril(x[:, :3]),
    "isclose": lambda m, x, y, r: m.isclose(x, x + 1e-9j),
    "nan_to_num": lambda m, x, y, r: (x / 0).nan_to_num(1, 2, 3),
    "float_power": lambda m, x, y, r: m.float_power(x, 2),
    "diagonal": lambda m, x, y, r: (x.diagonal(), m.trace(x[:, :3])),
    "zero powers": lambda m, x, y, r: ((x * 0) ** 2.5, (x * 0) ** 0, (x * 0) ** (1 + 1j)),
    "sgn of zero": lambda m, x, y, r: (x * 0).sgn(),
    "item": lambda m, x, y, r: (x[0, 0].item(), x[0].tolist(), complex(x[1, 1])),
    "bool": lambda m, x, y, r: bool(m.tensor(1j)),
    "long": lambda m, x, y, r: (x * 10).long(),
    "fill": lambda m, x, y, r: x.clone().fill_(2j),
    "empty": lambda m, x, y, r: (x[:0].sum(), x[:0].abs()),
}

REFUSED: dict[str, Call] = {
    "less": lambda m, x, y, r: x < y,
    "max": lambda m, x, y, r: x.max(),
    "floor": lambda m, x, y, r: x.floor(),
    "remainder": lambda m, x, y, r: x % 2,
    "float": lambda m, x, y, r: float(x[0, 0]),
    "int": lambda m, x, y, r: int(x[0, 0]),
    "into real": lambda m, x, y, r: r.add_(x),
    "fill": lambda m, x, y, r: r.fill_(1j),
    "imag of real": lambda m, x, y, r: r.imag,
    "view of real": lambda m, x, y, r: m.view_as_real(r),
    "three parts": lambda m, x, y, r: m.view_as_complex(r[:, :3].contiguous()),
    "apart": lambda m, x, y, r: m.view_as_complex(r.T[:, :2]),
    "parts of two dtypes": lambda m, x, y, r: m.complex(r, r.float()),
    "parts of integers": lambda m, x, y, r: m.complex(r.long(), r.long()),
    "softmax": lambda m, x, y, r: m.softmax(x, 0),
    "sign": lambda m, x, y, r: m.sign(x),
    "relu": lambda m, x, y, r: m.nn.functional.relu(x),
    "real from complex": lambda m, x, y, r: m.full((2,), 1j, dtype=m.float32),
    "deg2rad": lambda m, x, y, r: m.deg2rad(x),
    "complex loss": lambda m, x, y, r: x.clone().requires_grad_().sum().backward(),
}

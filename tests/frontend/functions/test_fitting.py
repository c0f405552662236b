"""Numbers that tensors are filled with, beside PyTorch: those of a dtype, and the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.torch]

DTYPES = "uint8 int8 int16 int32 int64 bool float16 bfloat16 float32 float64 complex64".split()
VALUES: dict[str, Any] = {
    "300": 300,
    "-200": -200,
    "-1": -1,
    "-256": -256,
    "2.7": 2.7,
    "-0.5": -0.5,
    "300.5": 300.5,
    "65504": 65504.0,
    "65505": 65505.0,
    "-1e9": -1e9,
    "2**40": 2**40,
    "2**63": 2**63,
    "1e39": 1e39,
    "inf": math.inf,
    "nan": math.nan,
    "true": True,
    "imaginary": 1j,
    "complex without an imaginary part": complex(3, 0),
}

FILLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "masked_fill": lambda m, x, v: x.masked_fill(m.tensor([True, False, True]), v),
    "masked_fill_": lambda m, x, v: x.masked_fill_(m.tensor([True, False, True]), v),
    "fill_": lambda m, x, v: x.fill_(v),
    "fill": lambda m, x, v: m.fill(x, v),
    "full": lambda m, x, v: m.full((2,), v, dtype=x.dtype),
    "full_like": lambda m, x, v: m.full_like(x, v),
    "new_full": lambda m, x, v: x.new_full((2,), v),
    "scatter": lambda m, x, v: x.scatter(0, m.tensor([1]), v),
    "scatter value": lambda m, x, v: x.scatter(0, m.tensor([1]), value=v),
    "index_fill": lambda m, x, v: x.index_fill(0, m.tensor([1]), v),
    "part": lambda m, x, v: written(x, 0, v),
    "mask": lambda m, x, v: written(x, m.tensor([True, False, True]), v),
    "positions": lambda m, x, v: written(x, m.tensor([0, 2]), v),
}


def written(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def outcome(m: Any, fill: Callable[[Any, Any, Any], Any], dtype: str, value: Any) -> Any:
    """The dtype and the numbers, or "refused"."""
    try:
        made = fill(m, m.tensor([1, 0, 1]).to(getattr(m, dtype)), value)
    except (RuntimeError, ValueError):
        return "refused"
    return str(made.dtype).split(".")[-1], np.array(made.tolist()).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FILLS)
def test_fills(torch: Any, name: str, dtype: str) -> None:
    for text, value in VALUES.items():
        if dtype == "complex64" and text == "1e39":
            continue  # a part that is infinite here, an error there
        if value == 2**63 and name in ("part", "mask", "positions"):
            continue  # PyTorch's keys refuse it for floats, too
        theirs, ours = (outcome(m, FILLS[name], dtype, value) for m in (torch, tw))
        assert repr(ours) == repr(theirs), text


@pytest.mark.parametrize("value", [3 + 0j, 3 + 1j])
@pytest.mark.parametrize("dtype", DTYPES)
def test_complex_tensors_fill(torch: Any, dtype: str, value: complex) -> None:
    theirs, ours = (
        outcome(m, lambda m, x, v: x.masked_fill(x == 0, m.tensor(v)), dtype, value)
        for m in (torch, tw)
    )
    assert ours == theirs


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "float16", "float32"])
@pytest.mark.parametrize("value", [-1.0, 300.0, 2.5, -1e9, math.inf, math.nan])
def test_padding(torch: Any, dtype: str, value: float) -> None:
    theirs, ours = (
        outcome(m, lambda m, x, v: m.nn.functional.pad(x, (1, 1), value=v), dtype, value)
        for m in (torch, tw)
    )
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "bool", "int32", "float32"])
@pytest.mark.parametrize("name", ["scatter_reduce", "index_reduce"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_reductions_at_positions(torch: Any, name: str, dtype: str) -> None:
    """Sums and means of complex numbers; products, maxima and minima of bools."""
    numbers = [[1 + 2j, 0, -3j], [2, 1 - 1j, 4], [0.5j, 3, -1]]
    for mode in ("sum", "prod", "mean", "amax", "amin"):
        if (name, mode) == ("index_reduce", "sum") or (mode == "prod" and dtype[0] == "c"):
            continue
        for include_self in (True, False):
            found = []
            for m in (torch, tw):
                x = m.tensor(numbers)
                x = (x if dtype.startswith("c") else x.real).to(getattr(m, dtype))
                at = m.tensor([2, 0, 2])
                if name == "scatter_reduce":
                    at = at.expand(3, 3)
                if name == "index_reduce" and not include_self and dtype[:4] in ("bool", "comp"):
                    continue  # PyTorch has no kernel
                try:
                    made = getattr(x, name)(0, at, x + x, mode, include_self=include_self)
                except RuntimeError:
                    found.append(None)
                else:
                    found.append((str(made.dtype).split(".")[-1], made.tolist()))
            if not found:
                continue
            theirs, ours = found
            assert (ours is None) == (theirs is None), mode
            if ours is not None:
                assert ours[0] == theirs[0]
                np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, err_msg=mode)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float32", "complex64"])
@pytest.mark.parametrize("alpha", [0, 1, 2, 2.5, -1, 2j])
def test_factor_of_index_add(torch: Any, dtype: str, alpha: Any) -> None:
    def add(m: Any, x: Any, factor: Any) -> Any:
        return x.index_add(0, m.tensor([2, 1]), x[:2], alpha=factor)

    theirs, ours = (outcome(m, add, dtype, alpha) for m in (torch, tw))
    assert ours == theirs


def test_complex_numbers_that_change() -> None:
    """Also in graphs that are compiled, by kernels that have only real numbers."""
    x = tw.tensor([1 + 2j, 3 - 1j])
    for i in range(8):
        number = complex(i, 1)
        y = x * number + x.clone().fill_(number)
        assert y.tolist() == [(1 + 2j) * number + number, (3 - 1j) * number + number]


KINDS = ["float16", "bfloat16", "float32", "float64"]
EXPONENTS = [-2100, -1100, -1074, -500, -149, -140, -24, -3, 0, 1, 20, 128, 200, 500, 1100, 2098]


@pytest.mark.parametrize("exponent", ["int64", "int16"])
@pytest.mark.parametrize("dtype", KINDS)
def test_ldexp(torch: Any, dtype: str, exponent: str) -> None:
    """Also where a power of two alone is infinite or 0: PyTorch's and C's results."""
    numbers = [0.0, -0.0, 1.0, -3.0, 2.0**-10, 1.75 * 2.0**-100, 2.0**-1000, 2.0**120, 1e300]
    numbers += [math.inf, -math.inf, math.nan, 5e-324]
    x, e = (v.ravel() for v in np.meshgrid(numbers, EXPONENTS))
    made = []
    for m in (torch, tw):
        left = m.tensor(x).to(getattr(m, dtype))
        right = m.tensor(e.astype(exponent))
        made.append(m.ldexp(left, right).double().numpy())
    np.testing.assert_array_equal(made[1], made[0])


@pytest.mark.parametrize("other", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_ldexp_of_unsigned_integers(torch: Any, other: str) -> None:
    for left, right in (("uint64", other), (other, "uint64")):
        made = []
        for m in (torch, tw):
            x = m.tensor([3, 0, 100], dtype=getattr(m, left))
            made.append(m.ldexp(x, m.tensor([63, 2, 100], dtype=getattr(m, right))))
        assert str(made[0].dtype) == str(made[1].dtype) == "torch.float32"
        np.testing.assert_array_equal(made[1].numpy(), made[0].numpy())

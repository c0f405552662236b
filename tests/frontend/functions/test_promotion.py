"""Type promotion, in full, against PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from oracle import DTYPES

import tilewright as tw
from tilewright.runtime import tiers

PAIRS = list(itertools.product(DTYPES, DTYPES))
SCALARS = (True, 2, 2.5)
NAMES = {"bool": "bool", "int": "int64", "float": "float32"}


def name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def test_promote_types(torch: Any) -> None:
    for a, b in PAIRS:
        expected = name(torch.promote_types(getattr(torch, a), getattr(torch, b)))
        assert name(tw.promote_types(getattr(tw, a), getattr(tw, b))) == expected, (a, b)


@pytest.mark.parametrize("ranks", [((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())])
def test_tensors_of_every_pair_of_dtypes(torch: Any, ranks: Any) -> None:
    for a, b in PAIRS:
        theirs = [
            torch.ones(s, dtype=getattr(torch, d)) for s, d in zip(ranks, (a, b), strict=True)
        ]
        ours = [tw.ones(s, dtype=getattr(tw, d)) for s, d in zip(ranks, (a, b), strict=True)]
        assert name(tw.result_type(*ours)) == name(torch.result_type(*theirs)), (a, b, ranks)
        for operator in (lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x / y):
            assert name(operator(*ours).dtype) == name(operator(*theirs).dtype), (a, b, ranks)


@pytest.mark.parametrize("shape", [(2,), ()])
def test_numbers_meet_every_dtype(torch: Any, shape: Any) -> None:
    for dtype, number in itertools.product(DTYPES, SCALARS):
        theirs, ours = (
            torch.ones(shape, dtype=getattr(torch, dtype)),
            tw.ones(shape, dtype=getattr(tw, dtype)),
        )
        assert name(tw.result_type(ours, number)) == name(torch.result_type(theirs, number))
        for operator in (
            lambda x, y: x + y, lambda x, y: y + x, lambda x, y: x * y, lambda x, y: x / y,
            lambda x, y: y / x, lambda x, y: x == y, lambda x, y: x > y,
        ):  # fmt: skip
            assert name(operator(ours, number).dtype) == name(operator(theirs, number).dtype)
        assert name(tw.where(ours > 0, ours, number).dtype) == name(
            torch.where(theirs > 0, theirs, number).dtype
        )


def test_numbers_of_the_default_dtype(torch: Any) -> None:
    before = tw.get_default_dtype()
    try:
        for dtype in ("float64", "float32"):
            tw.set_default_dtype(getattr(tw, dtype))
            torch.set_default_dtype(getattr(torch, dtype))
            for make in (
                lambda m: m.ones(2), lambda m: m.tensor(1.5), lambda m: m.tensor([1, 2]) / 2,
                lambda m: m.tensor([1, 2]) + 0.5, lambda m: m.sqrt(m.tensor([1, 4])),
                lambda m: m.arange(3.0),
                lambda m: m.linspace(0, 1, 3), lambda m: m.full((2,), 1.0), lambda m:
                    m.tensor([True]).exp(),
            ):  # fmt: skip
                assert name(make(tw).dtype) == name(make(torch).dtype)
    finally:
        tw.set_default_dtype(before)
        torch.set_default_dtype(torch.float32)
    with pytest.raises(TypeError):
        tw.set_default_dtype(tw.int64)


def test_results_of_mixed_cat_stack_and_where(torch: Any) -> None:
    for a, b in PAIRS:
        for call in (
            lambda m, x, y: m.cat([x, y]), lambda m, x, y: m.stack([x, y]),
            lambda m, x, y: m.where(m.tensor([True, False]), x, y),
        ):  # fmt: skip
            theirs = call(
                torch,
                torch.ones(2, dtype=getattr(torch, a)),
                torch.zeros(2, dtype=getattr(torch, b)),
            )
            ours = call(tw, tw.ones(2, dtype=getattr(tw, a)), tw.zeros(2, dtype=getattr(tw, b)))
            assert name(ours.dtype) == name(theirs.dtype), (a, b)


def test_in_place_writes_keep_the_dtype_or_refuse(torch: Any) -> None:
    for a, b in PAIRS:
        for write in ("add_", "mul_", "copy_"):
            theirs, ours = torch.ones(2, dtype=getattr(torch, a)), tw.ones(2, dtype=getattr(tw, a))
            try:
                getattr(theirs, write)(torch.ones(2, dtype=getattr(torch, b)))
            except RuntimeError:
                with pytest.raises(RuntimeError, match="can't be cast"):
                    getattr(ours, write)(tw.ones(2, dtype=getattr(tw, b)))
            else:
                getattr(ours, write)(tw.ones(2, dtype=getattr(tw, b)))
                assert name(ours.dtype) == a
                assert ours.tolist() == theirs.tolist()


def test_can_cast(torch: Any) -> None:
    for a, b in PAIRS:
        assert tw.can_cast(getattr(tw, a), getattr(tw, b)) == torch.can_cast(
            getattr(torch, a), getattr(torch, b)
        ), (a, b)


def test_core_rules_without_an_oracle() -> None:
    i, f, d, b = (tw.ones(2, dtype=t) for t in (tw.int32, tw.float32, tw.float64, tw.bool))
    assert (i + f).dtype is tw.float32 and (f + d).dtype is tw.float64
    assert (i + 1.5).dtype is tw.float32 and (i + 1).dtype is tw.int32
    assert (b + 1).dtype is tw.int64 and (i / i).dtype is tw.float32
    assert (f + tw.tensor(1.0, dtype=tw.float64)).dtype is tw.float32
    assert (tw.ones(2, dtype=tw.float16) + tw.ones(2, dtype=tw.bfloat16)).dtype is tw.float32
    assert b.sum().dtype is tw.int64


@pytest.mark.parametrize("tier", ["fused", "baseline"])
@pytest.mark.parametrize("source", ["float64", "float32", "int64"])
@pytest.mark.parametrize("target", ["float16", "bfloat16"])
def test_halves_of_wider_numbers(
    torch: Any, target: str, source: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A float64 is rounded to float32 first: by halves of units that makes a difference."""
    monkeypatch.setattr(tiers, "mode", tier)
    x = np.random.default_rng(0).standard_normal(50_000) * 9
    x[:2000] = np.linspace(1, 2, 2001)[:-1] + 2.0**-11 + 1e-12
    given = (x * 1000 if source == "int64" else x).astype(source)
    ours, theirs = (
        m.from_numpy(given).to(getattr(m, target)).double().numpy() for m in (tw, torch)
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("equation", ("bd,dn->bdn", "ij,jj->ij"))
def test_products_without_sums_promote(torch: Any, equation: str) -> None:
    made = []
    for m in (tw, torch):
        a, b = m.arange(9.0, dtype=m.float64).view(3, 3), m.arange(9).view(3, 3).float()
        made.append(m.einsum(equation, a, b))
        with pytest.raises(RuntimeError):
            m.einsum("ij,jk->ik", a, b)
    assert made[0].tolist() == made[1].tolist()
    assert str(made[0].dtype) == str(made[1].dtype)


MIXED = {
    "addcmul": lambda m, x, y: m.addcmul(x, y, y),
    "xlogy": lambda m, x, y: m.xlogy(x, y),
    "ldexp": lambda m, x, y: m.ldexp(x, y),
    "atan2": lambda m, x, y: m.atan2(x, y),
    "zeta": lambda m, x, y: m.special.zeta(x, y),
    "xlog1py": lambda m, x, y: m.special.xlog1py(x, y),
    "legendre": lambda m, x, y: m.special.legendre_polynomial_p(x, y),
    "norm": lambda m, x, y: m.linalg.vector_norm(x, dtype=y.dtype),
    "matrix norm": lambda m, x, y: m.linalg.matrix_norm(x[None], dtype=y.dtype),
}


@pytest.mark.parametrize("call", MIXED)
def test_results_of_two_dtypes(torch: Any, call: str) -> None:
    """The result's dtype and values where PyTorch takes both dtypes, halves beside integers too."""
    kinds = "bool int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
    for a, b in itertools.product(kinds, kinds):
        found = []
        for m in (torch, tw):
            x, y = (m.tensor([1, 2, 3]).to(getattr(m, d)) for d in (a, b))
            try:
                made = MIXED[call](m, x, y)
            except (RuntimeError, NotImplementedError):
                if m is torch:
                    break  # tilewright may take more
                raise
            wide = m.complex128 if made.dtype.is_complex else m.float64
            found.append((name(made.dtype), made.to(wide).numpy()))
        if found:
            (theirs, want), (ours, got) = found
            assert ours == theirs, (a, b)
            close = {"float16": 2e-3, "bfloat16": 1e-2}.get(ours, 1e-5)
            np.testing.assert_allclose(got, want, rtol=close, atol=close, err_msg=f"{a}, {b}")

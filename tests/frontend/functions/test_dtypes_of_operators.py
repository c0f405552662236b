"""The dtypes that operators take: whole numbers are computed, and others refused, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import op_db_values
import pytest

import tilewright as tw


def _made(m: Any, dtype: str, *shape: int) -> Any:
    return m.ones(shape, dtype=getattr(m, dtype))


CALLS: dict[str, tuple[str, Any]] = {
    **{
        f"{name} of bools": ("bool", lambda m, x, name=name: getattr(m, name)(x))
        for name in "abs floor ceil round trunc trace median frac".split()
    },
    "product of bools": ("bool", lambda m, x: x @ x),
    "linear of bools": ("bool", lambda m, x: m.nn.functional.linear(x, x)),
    "addmm of bools": ("bool", lambda m, x: m.addmm(x, x, x)),
    "clamp of bools": ("bool", lambda m, x: m.clamp(x, x, x)),
    "floor_divide of bools": ("bool", lambda m, x: m.floor_divide(x, x)),
    "kthvalue of bools": ("bool", lambda m, x: m.kthvalue(x, 1)),
    "bucketize of bools": ("bool", lambda m, x: m.bucketize(x, x[0])),
    "softmax of bools": ("bool", lambda m, x: x.softmax(0)),
    "hardtanh of bools": ("bool", lambda m, x: m.nn.functional.hardtanh(x)),
    "isin of bools": ("bool", lambda m, x: m.isin(x, x)),
    "cov of bools": ("bool", lambda m, x: m.cov(x)),
    "softmax of integers": ("int64", lambda m, x: x.softmax(0)),
    "frac of integers": ("int64", lambda m, x: x.frac()),
    "lerp of integers": ("int64", lambda m, x: x.lerp(x, 0.5)),
    "mse of integers": ("int64", lambda m, x: m.nn.functional.mse_loss(x, x)),
    "l1 mean of integers": ("int64", lambda m, x: m.nn.functional.l1_loss(x, x)),
    "gelu of integers": ("int64", lambda m, x: m.nn.functional.gelu(x)),
    "layer_norm of integers": ("int64", lambda m, x: m.nn.functional.layer_norm(x, (3,))),
    "hardtanh of bytes": ("uint8", lambda m, x: m.nn.functional.hardtanh(x)),
    "amax of complex": ("complex64", lambda m, x: x.amax(0)),
    "argmin of complex": ("complex64", lambda m, x: x.argmin()),
    "logit of complex": ("complex64", lambda m, x: x.logit()),
    "unique of complex": ("complex64", lambda m, x: x.unique()),
    "unravel_index of floats": ("float32", lambda m, x: m.unravel_index(x, (3, 3))),
    "unravel_index of bools": ("bool", lambda m, x: m.unravel_index(x, (3, 3))),
    "unique_consecutive of complex": ("complex64", lambda m, x: x.unique_consecutive()),
    "pdist of complex": ("complex64", lambda m, x: m.pdist(x)),
    "spherical_bessel_j0 of complex": (
        "complex64",
        lambda m, x: m.special.spherical_bessel_j0(x),
    ),
    "gradient of bytes": ("uint8", lambda m, x: m.gradient(x)),
    "masked softmax of integers": ("int64", lambda m, x: m.masked.softmax(x, 0)),
    "masked mean of integers": ("int64", lambda m, x: m.masked.mean(x, 0)),
    "masked logaddexp of integers": ("int64", lambda m, x: m.masked.logaddexp(x, x)),
    "normal_ of integers": ("int64", lambda m, x: x.normal_()),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_pytorch_refuses(torch: Any, name: str) -> None:
    dtype, call = CALLS[name]
    with pytest.raises((RuntimeError, TypeError, ValueError)) as expected:
        call(torch, _made(torch, dtype, 3, 3))
    with pytest.raises(expected.type):
        call(tw, _made(tw, dtype, 3, 3))


def test_the_error_names_the_dtype_in_pytorchs_words() -> None:
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        tw.ones(3).bool().softmax(0)
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(3\) must match"):
        tw.ones(3) + tw.ones(4)
    with pytest.raises(IndexError, match=r"amin\(\): Expected reduction dim 0"):
        tw.ones(0, 3).amin(0)


IMAGE = np.arange(-50, 46).reshape(1, 2, 6, 8)
WHOLE: dict[str, Any] = {
    "avg_pool1d": lambda m, x: m.nn.functional.avg_pool1d(x[0], 3),
    "avg_pool2d": lambda m, x: m.nn.functional.avg_pool2d(x, (4, 3), 2, 1, True),
    "avg_pool2d without padding": lambda m, x: m.nn.functional.avg_pool2d(x, 4, 3, 2, True, False),
    "avg_pool2d divided": lambda m, x: m.nn.functional.avg_pool2d(x, 2, divisor_override=-3),
    "local_response_norm": lambda m, x: m.nn.functional.local_response_norm(x, 2),
    "softsign": lambda m, x: m.nn.functional.softsign(x),
    "tanhshrink": lambda m, x: m.nn.functional.tanhshrink(x),
    "relu6": lambda m, x: m.nn.functional.relu6(x),
    "hardtanh": lambda m, x: m.nn.functional.hardtanh(x, -2.5, 3.5),
    "l1_loss": lambda m, x: m.nn.functional.l1_loss(x, -x, reduction="none"),
    "l1_loss, summed": lambda m, x: m.nn.functional.l1_loss(
        x.byte(), x.flip(3).byte(), None, None, "sum"
    ),
    "margin_ranking_loss": lambda m, x: m.nn.functional.margin_ranking_loss(x, -x, x, 0.5),
    "poisson_nll_loss": lambda m, x: m.nn.functional.poisson_nll_loss(x // 9, x.abs(), full=True),
    "cosine_embedding_loss": lambda m, x: m.nn.functional.cosine_embedding_loss(
        x[0, 0], x[0, 1], x[0, 0, :, 0]
    ),
    "softmin": lambda m, x: m.nn.functional.softmin(x.byte(), 1, dtype=m.float64),
    "arange": lambda m, x: m.arange(0.0, -8.000001, -4.0, dtype=m.int32),
    "arange, step 0": lambda m, x: m.arange(0, 2.5, 0.5, dtype=m.int16),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(torch: Any, name: str) -> None:
    theirs = WHOLE[name](torch, torch.from_numpy(IMAGE.copy()))
    op_db_values.same(WHOLE[name](tw, tw.from_numpy(IMAGE.copy())), theirs)


COMPLEX: dict[str, Any] = {
    "softsign": lambda m, x: m.nn.functional.softsign(x),
    "tanhshrink": lambda m, x: m.nn.functional.tanhshrink(x),
    "rms_norm": lambda m, x: m.nn.functional.rms_norm(x, (4,), x[0], 1e-3),
    "pad": lambda m, x: m.constant_pad_nd(x, (1, 2), 1 - 2j),
    "logaddexp": lambda m, x: m.logaddexp(x, x.flip(0)).exp(),  # it is one up to 2 pi i
    "masked var": lambda m, x: m.masked.var(x, 1, mask=x.real > -1),
    "var": lambda m, x: m.masked.std(x, 0),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(torch: Any, name: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    x = draw((3, 4)) + 1j * draw((3, 4))
    made = COMPLEX[name](tw, tw.from_numpy(x))
    op_db_values.same(made, COMPLEX[name](torch, torch.from_numpy(x)))


def test_calls_that_compute_nothing_return_their_tensor() -> None:
    x = tw.ones(3)
    for name in "positive conj_physical conj resolve_conj resolve_neg".split():
        for call in (getattr(tw, name), lambda t, name=name: getattr(t, name)()):
            assert call(x) is x
        assert getattr(tw, name)(a=x) is x  # by NumPy's name
        with pytest.raises(TypeError, match="must be Tensor"):
            getattr(tw, name)(3)

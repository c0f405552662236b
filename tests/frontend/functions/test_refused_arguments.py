"""What PyTorch refuses is refused: dtypes of `out`, operands that don't fit. 0-d tensors of whole
numbers are numbers. A program found it that changes one argument of each sample of `op_db`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


def x(m: Any, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype("f"))


SAME_OUT: dict[str, Any] = {
    **{
        name: lambda m, o, name=name: getattr(m, name)(x(m, 3, 3), out=o)
        for name in (
            "abs neg sign floor ceil trunc frac sgn conj_physical tril triu t_copy round msort "
            "nan_to_num"
        ).split()
    },
    **{
        name: lambda m, o, name=name: getattr(m, name)(x(m, 3, 3), 0, out=o)
        for name in "logcumsumexp amax amin softmax log_softmax".split()
    },
    "addmm": lambda m, o: m.addmm(x(m, 3, 3), x(m, 3, 3), x(m, 3, 3), out=o),
    "baddbmm": lambda m, o: m.baddbmm(x(m, 2, 3, 3), x(m, 2, 3, 3), x(m, 2, 3, 3), out=o),
    "mv": lambda m, o: m.mv(x(m, 3, 3), x(m, 3), out=o),
    "dot": lambda m, o: m.dot(x(m, 3), x(m, 3), out=o),
    "scatter": lambda m, o: m.scatter(x(m, 3), 0, m.tensor([0, 1]), x(m, 2), out=o),
    "index_add": lambda m, o: m.index_add(x(m, 3), 0, m.tensor([0, 1]), x(m, 2), out=o),
    "quantile": lambda m, o: m.quantile(x(m, 3), 0.5, out=o),
    "renorm": lambda m, o: m.renorm(x(m, 3, 3), 2, 0, 1.0, out=o),
    "linalg.inv": lambda m, o: m.linalg.inv(x(m, 3, 3), out=o),
    "linalg.solve": lambda m, o: m.linalg.solve(x(m, 3, 3), x(m, 3), out=o),
    "linalg.vector_norm": lambda m, o: m.linalg.vector_norm(x(m, 3), out=o),
    "zeros": lambda m, o: m.zeros(2, dtype=m.float32, out=o),
    "arange": lambda m, o: m.arange(3, dtype=m.float32, out=o),
}


@pytest.mark.parametrize("name", SAME_OUT)
def test_out_has_the_dtype_of_the_result(torch: Any, name: str) -> None:
    call = SAME_OUT[name]
    for m in (tw, torch):
        for dtype in (m.float64, m.complex64):
            with pytest.raises(RuntimeError):
                call(m, m.empty(0, dtype=dtype))
        assert call(m, m.empty(0)).dtype == m.float32


def test_out_of_another_dtype_where_pytorch_converts(torch: Any) -> None:
    for m in (tw, torch):
        for found in (
            m.sin(x(m, 3), out=m.empty(0, dtype=m.float64)),
            m.add(x(m, 3), 1, out=m.empty(0, dtype=m.float64)),
            m.zeros(2, out=m.empty(0, dtype=m.float64)),
            m.cumsum(x(m, 3), 0, out=m.empty(0, dtype=m.float64)),
            m.diff(x(m, 3), out=m.empty(0, dtype=m.float64)),
        ):
            assert found.dtype == m.float64
        for sums in (m.cumsum, m.cumprod):
            with pytest.raises(RuntimeError):
                sums(x(m, 3), 0, dtype=m.float32, out=m.empty(0, dtype=m.float64))
        assert m.all(x(m, 3), out=m.empty(0, dtype=m.uint8)).dtype == m.uint8
        with pytest.raises(RuntimeError):
            m.all(x(m, 3), out=m.empty(0))


REFUSED: dict[str, Any] = {
    "index_add of another dtype": lambda m: m.index_add(
        x(m, 3), 0, m.tensor([0, 1]), x(m, 2).double()
    ),
    "index_copy of another dtype": lambda m: m.index_copy(
        x(m, 3), 0, m.tensor([0, 1]), m.tensor([1, 2])
    ),
    "grids of two dtypes": lambda m: m.meshgrid(x(m, 2), m.arange(2), indexing="ij"),
    "combinations of a number": lambda m: m.cartesian_prod(x(m, 2), m.tensor(1.0)),
    "cross of two dtypes": lambda m: m.linalg.cross(x(m, 2, 3), x(m, 2, 3).double()),
    "cross of two ranks": lambda m: m.linalg.cross(x(m, 2, 3), x(m, 3)),
    "a slice of another size": lambda m: m.select_scatter(x(m, 2, 3), x(m, 1), 0, 0),
    "ranking of two ranks": lambda m: m.nn.functional.margin_ranking_loss(
        x(m, 2, 3), x(m, 3), x(m, 3)
    ),
    "triplets of two ranks": lambda m: m.nn.functional.triplet_margin_loss(
        x(m, 2, 3), x(m, 3), x(m, 2, 3)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_do_not_fit(torch: Any, name: str) -> None:
    for m in (tw, torch):
        with pytest.raises(RuntimeError):
            REFUSED[name](m)


def images(m: Any) -> Any:
    return x(m, 1, 2, 4, 4)


WHOLE: dict[str, Any] = {
    "split": lambda m, i: m.split(x(m, 4, 2), i)[1],
    "fft": lambda m, i: m.fft.rfft(x(m, 4, 4), dim=i).real,
    "histc": lambda m, i: m.histc(x(m, 9), bins=i),
    "tensordot": lambda m, i: m.tensordot(x(m, 3, 3), x(m, 3, 3), i),
    "select_scatter": lambda m, i: m.select_scatter(x(m, 3, 3), x(m, 3), 0, i),
    "avg_pool2d": lambda m, i: m.nn.functional.avg_pool2d(images(m), i),
    "max_pool2d": lambda m, i: m.nn.functional.max_pool2d(images(m), i),
    "conv2d": lambda m, i: m.nn.functional.conv2d(images(m), x(m, 1, 2, 2, 2), stride=i),
    "groups": lambda m, i: m.nn.functional.conv2d(images(m), x(m, 1, 2, 2, 2), groups=i),
    "group_norm": lambda m, i: m.nn.functional.group_norm(images(m), i),
    "softmax": lambda m, i: x(m, 3, 3).softmax(i),
    "ignore_index": lambda m, i: m.nn.functional.cross_entropy(
        x(m, 3, 3), m.tensor([0, 1, 2]), ignore_index=i
    ),
    "padding_idx": lambda m, i: m.nn.functional.embedding(m.tensor([0]), x(m, 3, 3), i),
    "narrow": lambda m, i: x(m, 3, 3).narrow(0, i, i),
    "chunk": lambda m, i: x(m, 3, 3).chunk(i + 1)[0],
    "unfold": lambda m, i: x(m, 3, 3).unfold(i, i, i),
    "diagonal": lambda m, i: x(m, 3, 3).diagonal(i, i - 1, i),
}


@pytest.mark.parametrize("name", WHOLE)
def test_tensors_that_stand_for_whole_numbers(torch: Any, name: str) -> None:
    ours, theirs = (WHOLE[name](m, m.tensor(1)) for m in (tw, torch))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours.numpy(), WHOLE[name](tw, 1).numpy())


VIEWS: dict[str, Any] = {
    "select": lambda t, i: t.select(0, i),
    "narrow": lambda t, i: t.narrow(0, i, i),
    "chunk": lambda t, i: t.chunk(i + 1)[0],
    "permute": lambda t, i: t.permute((i, 1 - i)),
    "by keyword": lambda t, i: t.select(dim=0, index=i),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_by_a_whole_tensor_follow_its_value(torch: Any, name: str) -> None:
    found = []
    for m in (tw, torch):
        source = x(m, 3, 3).requires_grad_()
        at = m.tensor(1)
        parts = [VIEWS[name](source, at)]
        parts.append(VIEWS[name](source, at.sub_(1)))
        assert all(type(size) is int for part in parts for size in part.shape)
        sum((part @ x(m, part.shape[-1], 2)).square().sum() for part in parts).backward()
        found.append([part.tolist() for part in parts] + [source.grad.numpy().round(4).tolist()])
    assert found[0] == found[1]


LOSSES: dict[str, Any] = {
    "gaussian": lambda m, a, b: m.nn.functional.gaussian_nll_loss(a, b, x(m, 4).abs()),
    "multilabel": lambda m, a, b: m.nn.functional.multilabel_soft_margin_loss(a, b),
}


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_two_dtypes(torch: Any, name: str, dtype: str) -> None:
    found = []
    for m in (tw, torch):
        other = (x(m, 4) * 3).to(getattr(m, dtype))
        found.append(LOSSES[name](m, x(m, 4), other))
    assert str(found[0].dtype) == str(found[1].dtype)
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-5)


BOOLS = "t([[True, False, True], [False, True, False], [True, True, True]])"
OF_OTHER_CLASSES = f"""
m.fft.fftshift(t(3.0))
m.fft.ifftshift(t(3.0))
m.special.hermite_polynomial_h(t([1j]), 2)
m.special.hermite_polynomial_he(t([1j]), t(2))
m.special.chebyshev_polynomial_t(t([1j]), 3)
m.special.shifted_chebyshev_polynomial_u(t([1j]), 3)
m.special.legendre_polynomial_p(t([1j]), 3)
m.special.laguerre_polynomial_l(t([1j]), 3)
m.mm(t([[1j]]).to(m.complex32), t([[1j]]).to(m.complex32))
m.narrow_copy(m.ones(3, 4), 2, 0, 1)
m.narrow_copy(m.ones(3, 4), -3, 0, 1)
m.narrow_copy(m.ones(3, 4), 0, 2, 2)
m.cat([e, m.ones(2)], out=e)
m.stack([f[0], f[1]], out=f[:2])
m.linalg.vander({BOOLS}[0])
m.linalg.cross({BOOLS}, {BOOLS})
m.linalg.ldl_solve({BOOLS}, m.ones(3, dtype=m.int32), {BOOLS})
m.cholesky({BOOLS})
m.dist({BOOLS}, {BOOLS})
m.linalg.inv({BOOLS})
m.linalg.matrix_power({BOOLS}, 2)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", OF_OTHER_CLASSES.strip().splitlines())
def test_the_class_of_an_error_is_pytorchs(torch: Any, source: str) -> None:
    classes = []
    for m in (torch, tw):
        names = {"m": m, "t": m.tensor, "e": m.zeros(0), "f": m.ones(3, 4)}
        with pytest.raises(Exception) as caught:
            eval(source, names)
        classes.append(caught.type)
    assert issubclass(classes[1], classes[0]), classes

"""Transforms, constraints and their registries, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.distributions import constraints

pytestmark = pytest.mark.computes

_X = [[0.3, -1.2, 0.8], [2.0, 0.1, -0.4]]
_POSITIVE = [[0.3, 1.2, 0.8], [2.0, 0.1, 3.4]]
_MATRIX = [[0.3, -1.2, 0.8], [2.0, 0.1, -0.4], [0.7, 0.6, -0.9]]
_VECTOR = [[0.3, -1.2, 0.8, 0.5, 0.9, -0.3], [2.0, 0.1, -0.4, 0.7, -1.0, 0.2]]

TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "exp": (lambda d: d.ExpTransform(), _X),
    "power": (lambda d: d.PowerTransform(1.7), _POSITIVE),
    "power of tensors": (lambda d: d.PowerTransform(_t(d, [0.5, 2.0, -1.0])), _POSITIVE),
    "sigmoid": (lambda d: d.SigmoidTransform(), _X),
    "softplus": (lambda d: d.SoftplusTransform(), _X),
    "tanh": (lambda d: d.TanhTransform(), _X),
    "abs": (lambda d: d.AbsTransform(), _POSITIVE),
    "affine": (lambda d: d.AffineTransform(0.3, -2.0), _X),
    "affine of tensors": (lambda d: d.AffineTransform(_t(d, _X), _t(d, [1.0, -2.0, 0.5])), _X),
    "affine of vectors": (
        lambda d: d.AffineTransform(_t(d, 1.0), _t(d, [1.0, -2.0, 0.5]), event_dim=1), _X
    ),
    "affine of vectors by a number": (lambda d: d.AffineTransform(1.0, -2.0, event_dim=1), _X),
    "softmax": (lambda d: d.SoftmaxTransform(), _X),
    "stick breaking": (lambda d: d.StickBreakingTransform(), _X),
    "lower cholesky": (lambda d: d.LowerCholeskyTransform(), _MATRIX),
    "positive definite": (lambda d: d.PositiveDefiniteTransform(), _MATRIX),
    "correlations": (lambda d: d.CorrCholeskyTransform(), _VECTOR),
    "reshape": (lambda d: d.ReshapeTransform((2, 3), (3, 2)), [_X, _POSITIVE]),
    "independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), _X),
    "compose": (
        lambda d: d.ComposeTransform([
            d.AffineTransform(0.1, 2.0), d.StickBreakingTransform(), d.SigmoidTransform().inv
        ]), _X
    ),
    "compose nothing": (lambda d: d.ComposeTransform([]), _X),
    "stack": (
        lambda d: d.StackTransform(
            [d.ExpTransform(), d.AffineTransform(1.0, 2.0), d.TanhTransform()], dim=-1
        ), _X
    ),
    "cat": (
        lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=1, lengths=[1, 2]), _X
    ),
    "cat of vectors": (
        lambda d: d.CatTransform(
            [d.StickBreakingTransform(), d.StickBreakingTransform()], dim=0, lengths=[1, 1]
        ), _X
    ),
    "distribution function": (
        lambda d: d.CumulativeDistributionTransform(d.Normal(_t(d, 0.1), _t(d, 0.8))), _X
    ),
}  # fmt: skip


def _t(d: Any, value: Any) -> Any:
    module = tw if d.__name__.startswith("tilewright") else __import__("torch")
    return module.tensor(value, dtype=module.float64)


def array(t: Any) -> np.ndarray:
    return np.asarray(t.detach().tolist())


def outcome(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except (NotImplementedError, ValueError) as error:
        return type(error)


def same(got: Any, want: Any, rtol: float = 1e-9) -> None:
    if isinstance(got, type) or isinstance(want, type):
        assert got is want
        return
    assert tuple(got.shape) == tuple(want.shape)
    np.testing.assert_allclose(array(got), array(want), rtol, 1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, torch: Any) -> None:
    make, value = TRANSFORMS[name]
    ours, theirs = make(tw.distributions), make(torch.distributions)
    assert repr(ours) == repr(theirs) and ours.bijective == theirs.bijective
    assert repr(ours.domain) == repr(theirs.domain)
    assert repr(ours.codomain) == repr(theirs.codomain)
    x = tw.tensor(value, dtype=tw.float64, requires_grad=True)
    tx = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    y, ty = ours(x), theirs(tx)
    same(y, ty)
    slope = outcome(ours.log_abs_det_jacobian, x, y)
    want = outcome(theirs.log_abs_det_jacobian, tx, ty)
    same(slope, want)
    for got, other in ((y, ty), (slope, want)):
        if isinstance(other, type) or not other.requires_grad:
            continue
        weights = np.linspace(1, 2, int(np.prod(other.shape))).reshape(other.shape)
        a = tw.autograd.grad((got * tw.tensor(weights)).sum(), x, retain_graph=True)[0]
        b = torch.autograd.grad((other * torch.tensor(weights)).sum(), tx, retain_graph=True)[0]
        np.testing.assert_allclose(array(a), array(b), 1e-7, 1e-10)
    back, tback = outcome(ours.inv, y.detach()), outcome(theirs.inv, ty.detach())
    same(back, tback, 1e-7)
    if ours.bijective:
        np.testing.assert_allclose(array(back), array(x), 1e-6)
        same(ours.inv.log_abs_det_jacobian(y, x), theirs.inv.log_abs_det_jacobian(ty, tx))
    assert ours.inv.inv is ours
    assert tuple(ours.forward_shape(x.shape)) == tuple(theirs.forward_shape(tx.shape))
    assert tuple(ours.inverse_shape(y.shape)) == tuple(theirs.inverse_shape(ty.shape))
    same(ours.with_cache(1)(x), ty)
    sign = outcome(lambda: ours.sign), outcome(lambda: theirs.sign)
    assert (
        array(sign[0]).tolist() == array(sign[1]).tolist()
        if isinstance(sign[0], tw.Tensor)
        else (sign[0] == sign[1])
    )


@pytest.mark.parametrize("name", ["stick breaking", "compose", "correlations", "sigmoid"])
def test_the_jacobian_by_autograd(name: str) -> None:
    make, value = TRANSFORMS[name]
    t = make(tw.distributions)
    x = tw.tensor(value[0], dtype=tw.float64)
    jacobian = array(tw.autograd.functional.jacobian(t, x))
    if name == "correlations":  # the free elements of the matrix
        jacobian = jacobian[np.tril_indices(4, -1)]
    elif jacobian.shape[0] != jacobian.shape[1]:
        jacobian = jacobian[:-1]
    if name == "compose":
        pytest.skip("its last coordinate is bound to the others")
    want = np.linalg.slogdet(jacobian)[1]
    got = array(t.log_abs_det_jacobian(x, t(x))).sum()
    np.testing.assert_allclose(got, want, 1e-8)


def test_caches() -> None:
    t = tw.distributions.ExpTransform(cache_size=1)
    x = tw.tensor([1.0, 2.0])
    y = t(x)
    assert t(x) is y and t.inv(y) is x and t.inv.inv is t
    assert tw.distributions.ExpTransform().inv(y) is not x
    with pytest.raises(ValueError, match="cache_size"):
        tw.distributions.ExpTransform(cache_size=2)


def test_equality() -> None:
    d = tw.distributions
    assert d.AffineTransform(0.0, 1.0) == d.AffineTransform(0.0, tw.tensor(1.0))
    assert d.AffineTransform(0.0, 1.0) != d.AffineTransform(0.0, 2.0)
    assert d.ExpTransform() == d.ExpTransform() and d.ExpTransform().inv == d.ExpTransform().inv
    assert d.ExpTransform() != d.TanhTransform()
    assert d.ComposeTransform([d.ExpTransform()]) == d.ComposeTransform([d.ExpTransform()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.ReshapeTransform((2, 3), (4,)), "different numbers of elements"),
        (lambda d: d.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)), "Shape mismatch"),
        (lambda d: d.CorrCholeskyTransform().forward_shape((4,)), "flattened lower-diagonal"),
        (lambda d: d.CorrCholeskyTransform().inverse_shape((2, 3)), "not square"),
        (lambda d: d.StickBreakingTransform().forward_shape(()), "Too few dimensions"),
        (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), 3), "must be a Transform or list"),
        (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]), "list of Transforms"),
        (
            lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), [d.StickBreakingTransform()]),
            "size at least 1",
        ),
        (lambda d: d.Independent(d.Normal(0.0, 1.0), 1), "Expected reinterpreted_batch_ndims"),
    ],
)
def test_errors(make: Any, message: str, torch: Any) -> None:
    for m in (tw, torch):
        with pytest.raises(ValueError, match=message):
            make(m.distributions)


# ---- constraints -----------------------------------------------------------------------------

NUMBERS = [-1.0, 0.0, 0.5, 1.0, 2.0, 7.0, float("inf"), float("nan")]
CHECKS: dict[str, tuple[Any, Any]] = {
    **{
        name: (lambda c, name=name: getattr(c, name), NUMBERS)
        for name in "boolean nonnegative nonnegative_integer positive positive_integer real "
        "unit_interval".split()
    },
    "greater_than": (lambda c: c.greater_than(0.5), NUMBERS),
    "greater_than_eq": (lambda c: c.greater_than_eq(0.5), NUMBERS),
    "less_than": (lambda c: c.less_than(0.5), NUMBERS),
    "interval": (lambda c: c.interval(0.5, 2), NUMBERS),
    "half_open_interval": (lambda c: c.half_open_interval(0.5, 2), NUMBERS),
    "integer_interval": (lambda c: c.integer_interval(0, 2), NUMBERS),
    "independent": (lambda c: c.independent(c.positive, 1), _X + _POSITIVE),
    "real_vector": (lambda c: c.real_vector, _X),
    "simplex": (lambda c: c.simplex, [[0.3, 0.7], [0.5, 0.6], [-0.1, 1.1], [1.0, 0.0]]),
    "one_hot": (lambda c: c.one_hot, [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]),
    "multinomial": (lambda c: c.multinomial(3), [[1.0, 2.0], [2.0, 2.0], [-1.0, 4.0]]),
    "square": (lambda c: c.square, [_MATRIX]),
    "lower_triangular": (lambda c: c.lower_triangular, [_MATRIX, np.tril(_MATRIX).tolist()]),
    "lower_cholesky": (
        lambda c: c.lower_cholesky, [_MATRIX, np.tril(_MATRIX).tolist(), np.eye(3).tolist()]
    ),
    "corr_cholesky": (
        lambda c: c.corr_cholesky,
        [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]], [[1.0, 0.6], [0.0, 0.8]]],
    ),
    "symmetric": (lambda c: c.symmetric, [_MATRIX, np.ones((3, 3)).tolist()]),
    "positive_definite": (
        lambda c: c.positive_definite, [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]]
    ),
    "positive_semidefinite": (
        lambda c: c.positive_semidefinite, [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]]
    ),
    "cat": (lambda c: c.cat([c.positive, c.real], 1, [1, 2]), _X),
    "stack": (lambda c: c.stack([c.positive, c.real, c.unit_interval], 1), _X),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_constraints(name: str, torch: Any) -> None:
    make, value = CHECKS[name]
    ours, theirs = make(constraints), make(torch.distributions.constraints)
    assert repr(ours) == repr(theirs)
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)
    got = ours.check(tw.tensor(value))
    want = theirs.check(torch.tensor(value))
    assert got.tolist() == want.tolist()
    if ours.takes_arrays:
        with np.errstate(all="ignore"):
            assert ours.check(np.asarray(value, np.float32)).tolist() == want.tolist()


def test_dependent_constraints() -> None:
    assert constraints.is_dependent(constraints.dependent)
    with pytest.raises(ValueError, match="Cannot determine validity"):
        constraints.dependent.check(tw.ones(2))
    with pytest.raises(NotImplementedError, match="event_dim"):
        _ = constraints.dependent.event_dim
    assert constraints.dependent(event_dim=1).event_dim == 1
    kind = tw.distributions.Uniform.support
    assert constraints.is_dependent(kind) and kind.event_dim == 0 and not kind.is_discrete


REGISTERED = {
    "real": _X, "positive": _X, "nonnegative": _X, "unit_interval": _X, "simplex": _X,
    "corr_cholesky": _VECTOR, "lower_cholesky": _MATRIX, "positive_definite": _MATRIX,
    "real_vector": _X,
}  # fmt: skip
MADE = {
    "greater_than": (lambda c: c.greater_than(2.0), _X),
    "less_than": (lambda c: c.less_than(2.0), _X),
    "interval": (lambda c: c.interval(-1.0, 2.0), _X),
    "half_open_interval": (lambda c: c.half_open_interval(-1.0, 2.0), _X),
    "independent": (lambda c: c.independent(c.positive, 1), _X),
    "cat": (lambda c: c.cat([c.positive, c.unit_interval], 1, [1, 2]), _X),
    "stack": (lambda c: c.stack([c.positive, c.real, c.unit_interval], 1), _X),
    **{name: (lambda c, name=name: getattr(c, name), x) for name, x in REGISTERED.items()},
}


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", MADE)
def test_registries(registry: str, name: str, torch: Any) -> None:
    make, value = MADE[name]
    results = []
    for m in (tw, torch):
        constraint = make(m.distributions.constraints)
        try:
            t = getattr(m.distributions, registry)(constraint)
        except NotImplementedError as error:
            results.append(str(error))
            continue
        y = t(m.tensor(value, dtype=m.float64))
        assert bool(constraint.check(y).all()), "the codomain is the set"
        results.append(array(y))
    np.testing.assert_array_equal(np.shape(results[0]), np.shape(results[1]))
    if isinstance(results[1], str):
        assert results[0] == results[1]
    else:
        np.testing.assert_allclose(results[0], results[1], 1e-9)


def test_registering() -> None:
    registry = type(tw.distributions.biject_to)()

    class Half(constraints.Constraint):
        pass

    with pytest.raises(NotImplementedError, match="Cannot transform Half"):
        registry(Half())

    @registry.register(Half)
    def _make(constraint: Any) -> Any:
        return tw.distributions.ExpTransform()

    assert registry(Half()) == tw.distributions.ExpTransform()
    with pytest.raises(TypeError, match="Constraint subclass"):
        registry.register(3, _make)


# ---- utilities -------------------------------------------------------------------------------


def test_utilities(torch: Any) -> None:
    for diag in (-2, -1, 0, 1, 2):
        a, b = (
            m.distributions.utils.tril_matrix_to_vec(m.tensor([_MATRIX, _MATRIX]), diag)
            for m in (tw, torch)
        )
        assert a.tolist() == b.tolist()
        a, b = (m.distributions.utils.vec_to_tril_matrix(x, diag) for m, x in ((tw, a), (torch, b)))
        assert a.tolist() == b.tolist()
    for m in (tw, torch):
        with pytest.raises(ValueError, match="cannot be expressed"):
            m.distributions.utils.vec_to_tril_matrix(m.ones(5))
        with pytest.raises(ValueError, match="outside"):
            m.distributions.utils.tril_matrix_to_vec(m.ones(2, 2), 5)
        for bad in ((1, "a"), (m.ones(2), [1])):
            with pytest.raises(ValueError, match="must all be instances of Number"):
                m.distributions.utils.broadcast_all(*bad)
        assert [t.dtype for t in m.distributions.utils.broadcast_all(1, 2)] == [m.float32] * 2
    for binary in (True, False):
        results = []
        for m in (tw, torch):
            u, p = m.distributions.utils, m.tensor([[0.0, 1.0], [0.3, 0.7]])
            logits = u.probs_to_logits(p, binary)
            results.append([array(logits), array(u.logits_to_probs(logits, binary))])
        np.testing.assert_allclose(results[0], results[1], 1e-5)


def test_lazy_properties() -> None:
    class Thing:
        count = 0

        @tw.distributions.utils.lazy_property
        def value(self) -> Any:
            """Its doc."""
            self.count += 1
            return tw.ones(1, requires_grad=True) * 2

    thing = Thing()
    with tw.no_grad():
        assert thing.value is thing.value and thing.count == 1
    assert thing.value.requires_grad
    assert isinstance(Thing.value, property)

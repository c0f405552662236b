"""torch.distributions.constraints: sets that parameters and samples lie in.

`constraint.check(value)` tells for each event of `value` whether it is in the set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor
from .. import cat as joined
from .. import stack as stacked

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """A set of events.

    is_discrete: whether its events are numbers one can count. event_dim: the number of dimensions
    of one event. takes_arrays: whether `check` takes NumPy arrays too.
    """

    is_discrete: bool = False
    event_dim: int = 0
    takes_arrays: bool = False

    def check(self, value: Any) -> Any:
        """Whether each event of `value` is in the set; bool, of the shape of the batch."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}()"


class _Bounded(Constraint):
    """A set with bounds, which its repr shows."""

    bounds: tuple[str, ...] = ()
    takes_arrays = True

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self.bounds)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


# ---- sets that depend on parameters ----------------------------------------------------------


class _Dependent(Constraint):
    """A set that depends on other parameters, so nothing can be checked."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return _known("is_discrete", self._is_discrete)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return _known("event_dim", self._event_dim)

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> Any:
        """The same with facts that are known: `constraints.dependent(event_dim=1)`."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Any) -> Any:
        raise ValueError(f"Cannot determine validity of dependent constraint{at_user_line()}")


def _known(name: str, fact: Any) -> Any:
    if fact is NotImplemented:
        raise NotImplementedError(f".{name} cannot be determined statically")
    return fact


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property whose value, on an instance, is a constraint; on the class it is dependent."""

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ):
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> Any:  # type: ignore[override]
        """Decorate: `@constraints.dependent_property(is_discrete=False, event_dim=0)`."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


# ---- sets made of sets -----------------------------------------------------------------------


class _IndependentConstraint(Constraint):
    """Events of `base_constraint` over the last dimensions, all of which are in its set."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__()

    @property
    def takes_arrays(self) -> bool:  # type: ignore[override]
        return self.base_constraint.takes_arrays

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        valid = self.base_constraint.check(value)
        dims = self.reinterpreted_batch_ndims
        if valid.ndim < dims:
            expected = self.base_constraint.event_dim + dims
            raise ValueError(
                f"Expected value.dim() >= {expected} but got {value.ndim}{at_user_line()}"
            )
        if not dims:
            return valid
        return valid.reshape(*valid.shape[: valid.ndim - dims], -1).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The set of a mixture: a value is in it if it is in the set of each component."""

    def __init__(self, base_constraint: Constraint):
        assert isinstance(base_constraint, Constraint)
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        # The components are the dimension before the event; a value has no such dimension.
        dims = self.event_dim
        if value.ndim < dims:
            raise ValueError(f"Expected value.dim() >= {dims} but got {value.ndim}{at_user_line()}")
        valid = self.base_constraint.check(value.unsqueeze(value.ndim - dims))
        return valid.all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Parts(Constraint):
    """Constraints of the parts of a value along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        assert all(isinstance(c, Constraint) for c in cseq)
        self.cseq, self.dim = list(cseq), dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)


class _Cat(_Parts):
    """Parts of the given lengths along `dim`, each in the set of its own constraint."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        assert -value.dim() <= self.dim < value.dim()
        parts = value.split_with_sizes(self.lengths, self.dim)
        return joined([c.check(v) for c, v in zip(self.cseq, parts)], self.dim)


class _Stack(_Parts):
    """Slices along `dim`, each in the set of its own constraint."""

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        dims = max(c.event_dim for c in self.cseq)
        return dims + 1 if self.dim + dims < 0 else dims

    def check(self, value: Any) -> Any:
        assert -value.dim() <= self.dim < value.dim()
        slices = [value.select(self.dim, i) for i in range(value.shape[self.dim])]
        return stacked([c.check(v) for c, v in zip(self.cseq, slices)], self.dim)


# ---- numbers ---------------------------------------------------------------------------------


class _Real(Constraint):
    """Numbers, infinities included: all but NaN."""

    takes_arrays = True

    def check(self, value: Any) -> Any:
        return value == value


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True
    takes_arrays = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _IntegerInterval(_Bounded):
    """Integers in [lower_bound, upper_bound]."""

    is_discrete = True
    bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Bounded):
    """Integers up to upper_bound."""

    is_discrete = True
    bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Bounded):
    """Integers from lower_bound on."""

    is_discrete = True
    bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _GreaterThan(_Bounded):
    """Numbers in (lower_bound, inf]."""

    bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_Bounded):
    """Numbers in [lower_bound, inf]."""

    bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_Bounded):
    """Numbers in [-inf, upper_bound)."""

    bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Bounded):
    """Numbers in [lower_bound, upper_bound]."""

    bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Numbers in [lower_bound, upper_bound)."""

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


# ---- vectors ---------------------------------------------------------------------------------


class _OneHot(Constraint):
    """Vectors of zeros with a single one."""

    is_discrete = True
    event_dim = 1
    takes_arrays = True

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    """Vectors of nonnegative numbers that sum to one, up to 1e-6."""

    event_dim = 1
    takes_arrays = True

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (abs(value.sum(-1) - 1) < 1e-6)


class _Multinomial(Constraint):
    """Vectors of nonnegative numbers that sum to upper_bound."""

    is_discrete = True
    event_dim = 1
    takes_arrays = True

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, x: Any) -> Any:
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


# ---- matrices --------------------------------------------------------------------------------


def _everywhere(holds: Tensor) -> Tensor:
    """Whether a condition holds in all elements of each matrix."""
    return holds.flatten(-2).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Any) -> Any:
        is_square = value.shape[-2] == value.shape[-1]
        from .. import bool as bool_

        return value.new_full(tuple(value.shape[:-2]), is_square, dtype=bool_)


class _LowerTriangular(_Square):
    """Square matrices with zeros above the diagonal."""

    def check(self, value: Any) -> Any:
        return _everywhere(value.tril() == value)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Lower triangular matrices with a positive diagonal and rows of length one."""

    def check(self, value: Any) -> Any:
        from .. import finfo

        slack = finfo(value.dtype).eps * value.shape[-1] * 10  # ten roundings for each term
        lengths = (value * value).sum(-1).sqrt()
        return super().check(value) & ((lengths - 1).abs() < slack).all(-1)


class _Symmetric(_Square):
    """Symmetric matrices, up to 1e-6."""

    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _everywhere(value.isclose(value.mT, atol=1e-6))


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        from ..linalg import eigvalsh

        return super().check(value) & (eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are positive."""

    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        from ..linalg import cholesky_ex

        return super().check(value) & (cholesky_ex(value)[1] == 0)


# ---- public names ----------------------------------------------------------------------------

dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack

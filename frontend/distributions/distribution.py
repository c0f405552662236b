"""torch.distributions.distribution: the base of all distributions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor, exp, no_grad
from . import constraints, validation
from .utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A family of distributions: a batch of `batch_shape`, of events of `event_shape`.

    A subclass lists its parameters in `arg_constraints` and its values in `support`. validate_args:
    whether parameters and values are checked (`validation.py`); ValueError tells what is wrong.

    _event_ranks: the parameters that `expand` expands, with the dimensions of one event of each. A
    class without them writes `expand` itself.
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    _validate_args: bool = __debug__
    _event_ranks: ClassVar[Mapping[str, int]]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their arguments where nothing else is said."""
        if value not in (True, False):
            raise ValueError(f"expected True or False, got {value!r}{at_user_line()}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            required = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with `validate_args=False` "
                "to turn off validation.",
                stacklevel=3,
            )
            return
        for name, constraint in required.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(
                getattr(type(self), name, None), lazy_property
            ):
                continue  # it isn't computed only for the check
            value = getattr(self, name)

            def shown(name: str = name, value: Any = value, constraint: Any = constraint) -> str:
                return (
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

            claim = (
                f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution "
                f"{type(self).__name__} to satisfy the constraint {type(constraint).__name__}, but "
                "found invalid values"
            )
            validation.require(constraint, value, claim, shown)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distribution with the parameters expanded to `batch_shape`."""
        owner: Any = next((c for c in type(self).__mro__ if "_event_ranks" in c.__dict__), None)
        if owner is None:
            raise NotImplementedError
        new = self._get_checked_instance(owner, _instance)
        batch_shape = Size(batch_shape)
        for name, rank in owner._event_ranks.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                event = value.shape[value.dim() - rank :]
                new.__dict__[name] = value.expand((*batch_shape, *event))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint of values, or None."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values without gradients, of shape sample_shape + batch_shape + event_shape."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values as differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw n values of each distribution of the batch: sample((n,))."""
        warnings.warn(
            "sample_n will be deprecated. Use .sample((n,)) instead",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Tensor:
        raise NotImplementedError

    def icdf(self, value: Any) -> Tensor:
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, in a first dimension; of shape
        (count,) + batch_shape + event_shape, with ones for batch_shape unless `expand`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats, of shape batch_shape."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        return exp(self.entropy())

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        """The shape of a sample."""
        if isinstance(sample_shape, int):
            raise TypeError(
                f"sample_shape must be a sequence of sizes, got {sample_shape}{at_user_line()}"
            )
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """ValueError if `value` is no tensor, of a wrong shape, or outside of the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor{at_user_line()}")
        first = value.dim() - len(self._event_shape)
        if value.shape[max(first, 0) :] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{Size(value.shape)} vs {self._event_shape}.{at_user_line()}"
            )
        expected = Size((*self._batch_shape, *self._event_shape))
        for i, j in zip(reversed(value.shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{Size(value.shape)} vs {expected}.{at_user_line()}"
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        assert support is not None
        about = f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)})"
        validation.require(
            support,
            value,
            f"{about} to be within the support ({type(support).__name__}) of the distribution "
            f"{type(self).__name__}, but found invalid values",
            lambda: (
                f"{about} to be within the support ({support!r}) of the distribution {self!r}, but "
                f"found invalid values:\n{value}"
            ),
        )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A blank distribution for `expand` of class `cls` to fill in."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        known = [name for name in self.arg_constraints if name in self.__dict__]
        shown = ", ".join(f"{name}: {_shown(self.__dict__[name])}" for name in known)
        return f"{type(self).__name__}({shown})"


def _shown(value: Any) -> str:
    return f"{value}" if value.numel() == 1 else f"{value.size()}"

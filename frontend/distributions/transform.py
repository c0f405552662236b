"""The base of transforms, and the inverse of one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import Tensor
from . import constraints


class Transform:
    """An invertible map y = f(x) whose Jacobian has a known determinant.

    A subclass has `domain` and `codomain`, `_call`, `_inverse` and `log_abs_det_jacobian(x, y)`.
    cache_size: 1 keeps the last pair (x, y), so that `inv(y)` returns the very `x`; else 0.
    """

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0):
        self._cache_size = cache_size
        self._inv: Any = (
            None  # a weak reference to the inverse; an inverse has the transform itself
        )
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1{at_user_line()}")
        self._pair: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        weak = isinstance(self._inv, weakref.ReferenceType)
        return {**self.__dict__, "_inv": None if weak else self._inv}

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        dims: int = self.domain.event_dim
        return dims

    @property
    def inv(self) -> Transform:
        """The inverse transform; its inverse is this one."""
        known: Transform | None = None if self._inv is None else self._inv()
        if known is None:
            known = _InverseTransform(self)
            self._inv = weakref.ref(known)
        return known

    @property
    def sign(self) -> Any:
        """1 or -1 (or a tensor of them): whether the map of numbers rises or falls."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with this cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        """y = f(x)."""
        if self._cache_size and x is self._pair[0]:
            return self._pair[1]
        y = self._call(x)
        if self._cache_size:
            self._pair = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        """x with f(x) = y."""
        if self._cache_size and y is self._pair[1]:
            return self._pair[0]
        x = self._inverse(y)
        if self._cache_size:
            self._pair = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """log |det dy/dx|, for each event."""
        raise NotImplementedError

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of f(x), from that of x."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of x, from that of f(x)."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of `transform`. The cache is that of the transform."""

    def __init__(self, transform: Transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:  # type: ignore[override]
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:  # type: ignore[override]
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

"""The attributes that a program gives to a tensor, apart from the tensor's own."""

from __future__ import annotations

from typing import Any

from ..recording import Handle
from .mirror import Mirror

fields = Handle.__mro__[-2].__dict__["__dict__"].__get__  # Python's own `__dict__` of an instance
_OWN = {name for kind in Handle.__mro__[:-1] for name in vars(kind)}


class Attributes(Mirror):
    """The attributes that a program gave to a tensor, without the tensor's own."""

    __slots__ = ("_written",)

    def __init__(self, fields: dict[str, Any]):
        super().__init__({name: value for name, value in fields.items() if name not in _OWN})
        self._written = fields

    def _other(self) -> dict[str, Any]:
        return self._written


class TensorMeta(type(Handle)):  # type: ignore[misc]
    """The class of Tensor and its subclasses. Each has Tensor's `__dict__` as its own, or a second
    base class would show a tensor's state among its attributes."""

    def __new__(mcs, name: str, bases: Any, body: dict[str, Any], **options: Any) -> Any:
        tensors = [base for base in bases if isinstance(base, TensorMeta)]
        if tensors:
            body.setdefault("__dict__", vars(tensors[0])["__dict__"])
        return super().__new__(mcs, name, bases, body, **options)

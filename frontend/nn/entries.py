"""The parameters, buffers and children of a module by name."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from ..exchange.mirror import Mirror

KINDS = ("_parameters", "_buffers", "_modules")
"""The attributes of a module that are entries."""


class Entries(Mirror):
    """A module's parameters, buffers or children by name, mirrored in its `__dict__`.

    Python finds an attribute there without `__getattr__`, which would cost ten times as much. A
    name that the class has is not mirrored: the class's attribute is found first, as in PyTorch,
    where a child may be called `parameters`. Nothing is mirrored for a class with a `__getattr__`
    of its own, which may give something else.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, items: Mapping[str, Any] | None = None):
        super().__init__()
        self._owner = weakref.ref(owner)
        self.update(items or {})

    def __setitem__(self, name: str, value: Any) -> None:
        owner = self._owner()
        kind: Any = type(owner)
        if owner is not None and (
            not kind._is_mirrored or any(name in vars(c) for c in kind.__mro__)
        ):
            dict.__setitem__(self, name, value)
        else:
            super().__setitem__(name, value)

    def _other(self) -> dict[str, Any] | None:
        owner = self._owner()
        return None if owner is None else owner.__dict__

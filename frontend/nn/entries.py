"""The parameters, buffers and children of a module by name."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any


class Entries(dict[str, Any]):
    """A module's parameters, buffers or children by name, mirrored in its `__dict__`.

    There an attribute is found without `__getattr__`, which costs ten times as much.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, items: Mapping[str, Any] | None = None):
        super().__init__()
        self._owner = weakref.ref(owner)
        for name, value in (items or {}).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        owner = self._owner()
        if owner is not None:
            owner.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        owner = self._owner()
        if owner is not None:
            owner.__dict__.pop(name, None)

    def pop(self, name: str, *default: Any) -> Any:
        value = super().pop(name, *default)
        owner = self._owner()
        if owner is not None:
            owner.__dict__.pop(name, None)
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *args: Any, **named: Any) -> None:
        for name, value in dict(*args, **named).items():
            self[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())

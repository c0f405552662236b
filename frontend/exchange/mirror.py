"""Mirror: a dictionary that repeats its writes in another one."""

from __future__ import annotations

from typing import Any


class Mirror(dict[str, Any]):
    """A dictionary that repeats its writes in `_other()`, if that isn't None."""

    __slots__ = ()

    def _other(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        other = self._other()
        if other is not None:
            other[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        other = self._other()
        if other is not None:
            other.pop(name, None)

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self:  # what the other one has by that name is its own
            return super().pop(name, *default)
        value = super().pop(name)
        other = self._other()
        if other is not None:
            other.pop(name, None)
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

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())

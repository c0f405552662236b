"""The state of a parameter that counts its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..functions import from_data
from .writing import _get_scalar_dtype


class Counted(dict[str, Any]):
    """A state whose "step" is a 0-d tensor, as PyTorch has it.

    A step needs the number, `count`, and no tensor. So the tensor is made when somebody looks, and
    from then on both are kept equal: `read` before a step, `write` after it.
    """

    count = 0
    left: tuple[float, ...] | None = None  # numbers that a step leaves to the next one
    _seen: np.ndarray | None = None  # the memory of the tensor, once there is one
    anybody_looked = False  # whether any state has a tensor

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.update(values)

    def read(self) -> None:
        """Take over what somebody may have written into the tensor."""
        if self._seen is not None:
            self.count = int(self._seen)

    def write(self) -> None:
        if self._seen is not None:
            self._seen[...] = self.count

    def packed(self) -> dict[str, Any]:
        """A plain dict with the same values. Its step is a tensor of its own, unless somebody
        looked before."""
        if self._seen is None:
            step = from_data.tensor(float(self.count), dtype=_get_scalar_dtype())
            return {"step": step, **dict(dict.items(self))}
        return dict(dict.items(self))

    def _look(self) -> None:
        """Make the tensor, as the first entry."""
        if self._seen is None:
            self._seen = np.array(self.count, _get_scalar_dtype().np)
            others = dict(dict.items(self))
            dict.clear(self)
            dict.update(self, {"step": from_data.from_numpy(self._seen), **others})
            Counted.anybody_looked = True

    # Reading an entry that is there costs what it costs in a dict: `__getitem__` is its own.

    def __missing__(self, key: str) -> Any:
        if key != "step" or self._seen is not None:
            raise KeyError(key)
        self._look()
        return dict.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (key == "step" and self._seen is None)

    def __len__(self) -> int:
        return dict.__len__(self) + (self._seen is None)

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "step":
            dict.__setitem__(self, key, value)
        else:
            self.count = int(value)
            self.write()

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *values: Any, **named: Any) -> None:  # type: ignore[override]
        for key, value in dict(*values, **named).items():
            self[key] = value

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _looking(name: str) -> Callable[..., Any]:
    plain: Any = getattr(dict, name)

    def method(self: Counted, *args: Any) -> Any:
        self._look()
        return plain(self, *args)

    method.__name__ = method.__qualname__ = name
    return method


for _name in ("__iter__", "__reversed__", "__repr__", "__eq__", "__ne__", "__or__", "__ror__"):
    setattr(Counted, _name, _looking(_name))
for _name in ("keys", "values", "items", "pop", "popitem", "copy"):
    setattr(Counted, _name, _looking(_name))

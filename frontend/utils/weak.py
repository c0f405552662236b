"""torch.utils.weak: dictionaries whose keys are objects themselves, not what they are equal to."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

__all__ = [
    "TensorWeakRef",
    "WeakIdKeyDictionary",
    "WeakIdRef",
    "WeakTensorKeyDictionary",
]


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is equal to another one if both refer to the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None):
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        a, b = self(), other() if isinstance(other, weakref.ref) else None
        return a is b if a is not None and b is not None else self is other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """Values by objects. An entry lasts as long as its key."""

    def __init__(self, dict: Any = None, ref_type: type = WeakIdRef):
        self.data: dict[Any, Any] = {}
        self.ref_type = ref_type
        if dict is not None:
            self.update(dict)

    def _ref(self, key: Any) -> Any:
        data = self.data
        return self.ref_type(key, lambda reference: data.pop(reference, None))

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._ref(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for reference in list(self.data) if (key := reference()) is not None])

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of a class without weak references
            return False

    def keyrefs(self) -> list[Any]:
        """The references to the keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        made = type(self)(ref_type=self.ref_type)
        made.update(self)
        return made

    __copy__ = copy

    def __or__(self, other: Any) -> WeakIdKeyDictionary:
        made = self.copy()
        made.update(other)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Any):
        self.ref: Any = weakref.ref(tensor)

    def __call__(self) -> Any:
        return self.ref()

"""torch.nn.factory_kwargs: options of creation functions among those of a module."""

from __future__ import annotations

from typing import Any

_NAMES = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The options device, dtype and memory_format, given by name or in `factory_kwargs`.

    TypeError for any other option, and for one that is given twice.
    """
    if kwargs is None:
        return {}
    simple = set(kwargs) - {"factory_kwargs"}
    if not simple <= set(_NAMES):
        raise TypeError(f"unexpected kwargs {simple - set(_NAMES)}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in _NAMES:
        if name in kwargs:
            if name in found:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            found[name] = kwargs[name]
    return found

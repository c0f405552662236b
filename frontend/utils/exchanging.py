"""torch.utils.swap_tensors and set_module."""

from __future__ import annotations

import weakref
from typing import Any

from tilewright.ir.location import at_user_line

from .. import recording
from ..exchange import attributes
from ..recording.references import OwnReference

__all__ = ["set_module", "swap_tensors"]


def set_module(obj: Any, mod: str) -> None:
    """Set the `__module__` of an object, as an error message shows it."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange two tensors: each object becomes the other with its value, class and attributes.

    RuntimeError if one has weak references, or is a view or has views.
    """
    for t in (t1, t2):
        if any(not isinstance(ref, OwnReference) for ref in weakref.getweakrefs(t)):
            raise RuntimeError(
                "Cannot swap tensors: one of them has weakref associated with it" + at_user_line()
            )
        if t._is_view():
            raise RuntimeError(f"Cannot swap tensors: one of them is a view{at_user_line()}")
    recording.flush()  # so that no table of the epoch holds one of them
    fields = [dict(attributes.fields(t)) for t in (t1, t2)]
    for t, new in zip((t1, t2), reversed(fields)):
        own = attributes.fields(t)
        own.clear()
        own.update(new)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for t in (t1, t2):
        if t._storage is not None:
            t._storage._first = OwnReference(t)

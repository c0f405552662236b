"""Outlines of usual calls, learned before a program begins.

To learn what a call computes takes as long as some dozen calls (`families.py`). The outlines of
usual ones are made with the package: `tools/make_pack.py` runs them and writes what was learned, by
the family, into a file beside this one. Where there is none, or it was made from other sources, the
same outlines are learned when they are needed.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from tilewright import ir
from tilewright.ir.dtype import DType, float32
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Op
from tilewright.ir.ops import constant_op
from tilewright.ir.ops.generate import constant_value
from tilewright.runtime import baseline, debug, files
from tilewright.runtime.native import pack

from .epoch import GRADIENT, PLACE
from .numbers import default_dtype

FILE = Path(__file__).with_name("calls.pack")


class Unsaid(Exception):
    """A family has no name that is the same in another process."""


def outlines(family: tuple[Any, ...]) -> list[Any]:
    """The outlines of a family that are known; most have none."""
    known = _known()
    if not known or default_dtype() is not float32:  # which they were learned with
        return []
    try:
        found = known.get(name(family))
        return [] if found is None else _Reader(io.BytesIO(found)).load()
    except (Unsaid, LookupError, ValueError, pickle.UnpicklingError):
        return []


def write(found: Mapping[tuple[Any, ...], list[Any]]) -> int:
    """Write the file of outlines, by their families: those that have a name. Returns their
    number."""
    entries = {}
    for family, each in found.items():
        try:
            entries[name(family)] = _written(each)
        except (Unsaid, pickle.PicklingError, AttributeError, TypeError):
            continue
    with files.whole(FILE) as out:
        pickle.dump((_sources(), entries), out)
    _known.cache_clear()
    return len(entries)


@functools.cache
def _known() -> dict[str, bytes]:
    """The outlines by the names of their families."""
    if not pack.is_here():  # they were learned where it is, and forms differ without it
        return {}
    try:
        with FILE.open("rb") as file:
            sources, found = pickle.load(file)
        if not files.is_checkout() or sources == _sources():
            return found  # type: ignore[no-any-return]
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError, pickle.UnpicklingError):
        debug.say(f"{FILE.name} cannot be read")
    return {}


@functools.cache
def _sources() -> str:
    """The sources that outlines depend on."""
    frontend = Path(__file__).parents[1]
    parts = ("autograd", "functions", "linalg", "nn", "optim", "recording")
    return files.fingerprint(
        [*ir.__path__, *baseline.__path__, *[str(frontend / part) for part in parts]]
    )


# ---- names of families -----------------------------------------------------------------------


def name(part: Any) -> str:
    """The name of a family, or of a part of its key; Unsaid if it has none."""
    kind = part.__class__
    if isinstance(part, tuple):
        return f"({','.join(map(name, part))})"
    if part is None or kind in (bool, int, float, str, complex):
        return repr(part)
    if kind is DType:
        return f"<{part.name}>"
    if part is GRADIENT:
        return "~"
    if part is PLACE:
        return "_"
    if isinstance(part, Op):
        if REGISTRY.get(part.name) is not part:
            raise Unsaid
        return f"op {part.name}"
    if kind is FunctionType:
        return _name_of_function(part)
    if isinstance(part, Node) and part.op is constant_op:
        return f"{constant_value(part)!r} <{part.dtype.name}>"
    raise Unsaid


@functools.lru_cache(4096)
def _name_of_function(function: FunctionType) -> str:
    """The place of a function, and what it has taken from where it was made."""
    code = function.__code__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    taken = (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    place = f"{function.__module__}:{code.co_firstlineno}:{function.__qualname__}"
    try:
        return f"{place}{name(taken)}"
    except RecursionError:  # a function that knows itself
        raise Unsaid from None


# ---- outlines as bytes -----------------------------------------------------------------------


class _Writer(pickle.Pickler):
    """Ops and dtypes are written by their names: there is one of each."""

    def persistent_id(self, part: Any) -> Any:
        if part.__class__ is DType:
            return part.name
        if isinstance(part, Op):
            if REGISTRY.get(part.name) is not part:
                raise Unsaid
            return (part.name,)
        return None


class _Reader(pickle.Unpickler):
    def persistent_load(self, said: Any) -> Any:
        return REGISTRY[said[0]] if said.__class__ is tuple else _DTYPES[said]


_DTYPES = {dtype.name: dtype for dtype in vars(ir.dtype).values() if isinstance(dtype, DType)}


def _written(each: Any) -> bytes:
    out = io.BytesIO()
    _Writer(out, pickle.HIGHEST_PROTOCOL).dump(each)
    return out.getvalue()

"""Forms composed to one function of arrays.

A template looks for a form of each of its steps whenever it runs, as the sizes may be new. Where
they come again, the forms are known: a function that is written for such steps calls one after
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .forms import Form

Places = tuple[int, ...]
SHARED = -1
"""The place of the stages that composites share."""


class Bound(NamedTuple):
    """What a template computes for operands of known sizes: run(*arrays), or, if `is_staged`,
    run(shared, *arrays). is_bare: whether it makes arrays of its own, and NumPy warns of
    nothing."""

    run: Callable[..., Any]
    is_staged: bool
    is_bare: bool = False


def composed(
    count: int,
    steps: Sequence[tuple[Form, Places]],
    results: Sequence[int],
    is_single: bool,
    may_write: bool = True,
) -> Callable[..., Any] | None:
    """The function of `count` operands that calls forms, each on the values at its places: those of
    the operands and then of the steps. If a form takes what is at SHARED, the function takes that
    first. It returns a tuple of results, or one if `is_single`. None if it would have to be
    written, which takes some dozen calls, and may not."""
    if len(steps) == 1 and is_single and results[0] == count:
        form, places = steps[0]
        if places[places[:1] == (SHARED,) :] == tuple(range(count)):
            return form
    key = (count, tuple([p for _, p in steps]), tuple(results), is_single)
    write = _written.get(key)
    if write is None:
        if not may_write:
            return None
        if len(_written) >= _REMEMBERED:
            _written.clear()
        write = _written[key] = _writer(*key)
    function: Callable[..., Any] = write([f for f, _ in steps])
    return function


_REMEMBERED = 1024
_written: dict[Any, Callable[[list[Form]], Callable[..., Any]]] = {}


def _writer(
    count: int, steps: tuple[Places, ...], results: Places, is_single: bool
) -> Callable[[list[Form]], Callable[..., Any]]:
    """What composes forms that stand in this way."""

    def tuple_of(names: Sequence[str]) -> str:
        return "".join([f"{n}, " for n in names])

    def values(places: Sequence[int]) -> str:
        return tuple_of(["shared" if p == SHARED else f"v{p}" for p in places])

    first = [SHARED] if any([SHARED in at for at in steps]) else []
    forms = tuple_of([f"f{i}" for i in range(len(steps))])
    read = {*results}
    for i, at in reversed([*enumerate(steps, count)]):
        if i in read:
            read.update(at)
    lines = [
        f"v{count + i} = f{i}({values(at)})" for i, at in enumerate(steps) if count + i in read
    ]
    body = "\n        ".join(lines)
    returned = f"v{results[0]}" if is_single else f"({values(results)})"
    source = f"""
def write(forms):
    {f"{forms}= forms" if forms else "pass"}
    def run({values([*first, *range(count)])}):
        {body or "pass"}
        return {returned}
    return run
"""
    scope: dict[str, Any] = {}
    exec(source, scope)
    made: Callable[[list[Form]], Callable[..., Any]] = scope["write"]
    return made

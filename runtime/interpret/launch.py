"""Launches of Triton kernels in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.triton import Emitted
from tilewright.codegen.triton.emitted import failed

from ..device import Launch


def bind(emitted: Emitted) -> Launch:
    """The launch of a kernel in the interpreter."""
    from .interpreter import argument, kernel_function, run

    function = kernel_function(emitted.sha, emitted.body, emitted.name)
    fixed: dict[str, Any] = dict(emitted.constexprs)
    tables = []
    for each in emitted.arguments:
        if each.role in ("size", "number"):
            fixed[each.name] = argument(each.type, each.value)
        elif each.role == "table":
            tables.append(each.value)
            fixed[each.name] = argument(each.type, each.value.ctypes.data)

    def launch(buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        # The arrays must outlive the launch: as locals `errors` and `addresses` do.
        errors = np.zeros(len(emitted.checks), np.int64)
        places = [b.ctypes.data for b in buffers]
        passed = dict(fixed)
        for each in emitted.arguments:
            if each.role == "buffer":
                passed[each.name] = argument(each.type, places[each.value])
            elif each.role == "place":
                place, offset = each.value
                passed[each.name] = argument(each.type, places[place] + offset)
            elif each.role == "matrix":
                place, *shape = each.value
                passed[each.name] = argument(each.type, (places[place], *shape))
            elif each.role == "scalar":
                passed[each.name] = argument(each.type, scalars[each.value])
            elif each.role == "errors":
                passed[each.name] = argument(each.type, errors.ctypes.data)
            elif each.role == "pointers":
                addresses = np.array([places[i] for i in each.value], np.int64)
                passed[each.name] = argument(each.type, addresses.ctypes.data)
        try:
            run(function, emitted.programs, passed)
        except Exception as error:
            raise (error if emitted.function is None else emitted.failure(error)) from error
        for check, word in zip(emitted.checks, errors.tolist()):
            if word:
                raise failed(check, word)

    return launch

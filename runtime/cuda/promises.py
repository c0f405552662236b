"""Promises: what the compiler is told of a kernel's sizes, as long as they are new.

A kernel whose sizes are multiples of 16 becomes better code if the compiler knows that. But a
program that meets another size at each step would compile each kernel again for each kind of size.
So a text is compiled for the first kinds of sizes exactly, and then once for what they have in
common with all that come. A plan that repeats gets kernels for its own sizes after all
(`Provisional` in `launch.py`). The rule counts what the program asked for, and never looks into the
disk cache. Packs, which the user names, come first: see `Kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from tilewright.codegen.triton.emitted import LEAST_DIVISOR, Emitted

EXACT = 2
"""The kinds of sizes for which a text is compiled exactly, before it is compiled for all kinds."""

Divisors = dict[str, int]
"""Parameter -> the number that divides it, as the compiler is told."""


class Promises:
    """What was promised for each text."""

    def __init__(self) -> None:
        self._made: dict[Hashable, list[Divisors]] = {}

    def of(self, kernel: Emitted) -> Divisors:
        """The divisors to compile `kernel` for. They hold for its sizes."""
        exact = kernel.divisible
        made = self._made.setdefault(_text(kernel), [])
        if exact in made:
            return exact
        if len(made) < EXACT or kernel.function is not None or kernel.plain is not None:
            made.append(exact)
            return exact
        if len(made) == EXACT:
            made.append(made[0])
        for each in (*made[:EXACT], exact):
            made[EXACT] = _common(made[EXACT], each)
        return made[EXACT]


def _text(kernel: Emitted) -> Hashable:
    """All that the compiler is told besides."""
    return (
        kernel.sha,
        tuple(kernel.constexprs.items()),
        kernel.num_warps,
        kernel.num_stages,
        kernel.registers,
        kernel.aligned,
    )


def _common(a: Divisors, b: Divisors) -> Divisors:
    """The divisors that both promise."""
    both = {name: math.gcd(a[name], b[name]) for name in a if name in b}
    return {name: power for name, power in both.items() if power >= LEAST_DIVISOR}

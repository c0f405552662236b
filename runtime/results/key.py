"""Keys of results: a kernel's structure and sizes, a device, and versions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.structure import parameters, structure
from tilewright.codegen.lower.external import Site

from .. import cache


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a result. structure: a hash of the kernel without its numbers; sizes: those
    numbers. device: the engine's `identity`; versions: of the software that its code depends on."""

    structure: str
    sizes: tuple[int, ...]
    device: str
    versions: str


def of(kernel: Kernel | Bundle | Site, device: str, versions: str) -> Key:
    """The key of a kernel. A Bundle's sizes are the number of members and the sizes of the
    largest."""
    if isinstance(kernel, Site):
        return Key(kernel.structure, kernel.sizes, device, versions)
    if isinstance(kernel, Kernel):
        return Key(cache.digest(structure(kernel)), parameters(kernel), device, versions)
    sizes = (len(kernel.members), *parameters(kernel.largest))
    return Key(cache.digest(f"bundle of\n{structure(kernel.largest)}"), sizes, device, versions)


def bucket(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes, rounded to powers of two, as their logarithms."""
    return tuple(round(math.log2(max(n, 1))) for n in sizes)


def distance(a: Sequence[int], b: Sequence[int]) -> float | None:
    """The distance between two lists of sizes, in octaves. None if they are too far apart to share
    a result: the median difference is above one octave, or the largest above three. (Some sizes are
    products of others, such as the size of a buffer.)"""
    if len(a) != len(b):
        return None
    steps = sorted(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in zip(a, b))
    if steps and (steps[len(steps) // 2] > 1.0 or steps[-1] > 3.0):
        return None
    return sum(steps)

"""What results are kept under: a kernel's structure and sizes, a device, and versions."""

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
    """structure: a hash of the kernel without its numbers; sizes: these. device: as the engine
    calls it; versions: of what its code depends on."""

    structure: str
    sizes: tuple[int, ...]
    device: str
    versions: str


def of(kernel: Kernel | Bundle | Site, device: str, versions: str) -> Key:
    """A Bundle has the sizes of its largest member, and how many there are."""
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
    """How far sizes are from others, in octaves; None if that is too far for one to tell of the
    other: most of them differ by more than one, or one of them by more than three. (Some are
    products of others, such as the size of a buffer.)"""
    if len(a) != len(b):
        return None
    steps = sorted(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in zip(a, b))
    if steps and (steps[len(steps) // 2] > 1.0 or steps[-1] > 3.0):
        return None
    return sum(steps)

"""The plan of a kernel as a product over windows: its parts, and the layouts of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...kernel import Kernel, Load, Store, Value
from ...kernel.canonical import copied
from ..machine import CannotLower
from .operands import check_columns, images
from .residues import split
from .roles import Product, is_flipped, product, size

LEAST_COLUMNS = 2
"""The least columns. They fill registers; with fewer (a depthwise convolution) tiles don't pay."""


@dataclass(frozen=True)
class Part:
    """A product that computes some of a kernel's points. image: a load of the laid out rows, in the
    place of `product.rows`."""

    kernel: Kernel
    product: Product
    image: Load


@dataclass(frozen=True)
class Plan:
    """parts: the products. rest: kernels that are computed point by point, because they have no
    product left or a product too narrow. images: the kernels that lay out the rows."""

    parts: Sequence[Part]
    rest: Sequence[Kernel]
    images: Sequence[Kernel]


def plan(kernel: Kernel) -> Plan | None:
    """The plan of a product over windows; None if the kernel is none."""
    try:
        return _plan(kernel)
    except CannotLower:
        return None


def _plan(kernel: Kernel) -> Plan | None:
    if not kernel.has_dot or kernel.is_chained:
        return None
    flipped = is_flipped(kernel)
    parts = split(kernel)
    work = [part for part in parts if part.has_dot]
    products = [product(part, flipped) for part in work]
    rest = [part for part in parts if not part.has_dot]
    if not work or any(
        size(p.m) < 2 or not size(p.k) * size(p.n) * size(p.batch) for p in products
    ):
        return None
    for each in products:
        check_columns(each)
    kernels, loads = images(products)
    made = [Part(*each) for each in zip(work, products, loads, strict=True)]
    if size(products[0].n) < LEAST_COLUMNS:
        return Plan([], [*rest, *(_of_image(part) for part in made)], kernels)
    return Plan(made, rest, kernels)


def _of_image(part: Part) -> Kernel:
    """The kernel of a part with its rows read from their image."""
    kernel, found = part.kernel, part.product
    made: dict[int, Value] = {}
    for value in kernel.values:
        done = part.image if value is found.rows else copied(value, made, lambda index: index)
        made[id(value)] = done
    stores = tuple(Store(s.buffer, s.offset, made[id(s.value)]) for s in kernel.stores)
    return Kernel(kernel.name, kernel.parallel, kernel.reduction, stores, kernel.notes)

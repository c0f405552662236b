"""How a kernel is a product over windows: its parts, and where their operands are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...kernel import Kernel, Load
from ..machine import CannotLower
from .operands import check_columns, images
from .residues import split
from .roles import Product, is_flipped, product, size

LEAST_COLUMNS = 4
"""Columns fill registers; with fewer than these, most of it would be computed in vain."""


@dataclass(frozen=True)
class Part:
    """A product of a kernel that computes some of its points; image: a load of the laid out rows,
    in the place of `product.rows`."""

    kernel: Kernel
    product: Product
    image: Load


@dataclass(frozen=True)
class Plan:
    """parts: products; rest: kernels of points for which no product is left; images: the kernels
    that lay out the rows."""

    parts: Sequence[Part]
    rest: Sequence[Kernel]
    images: Sequence[Kernel]


def plan(kernel: Kernel) -> Plan | None:
    """None if the kernel isn't a product over windows, or too narrow."""
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
    if not work or max(size(p.n) for p in products) < LEAST_COLUMNS:
        return None
    if any(size(p.m) < 2 or not size(p.k) * size(p.n) * size(p.batch) for p in products):
        return None
    for each in products:
        check_columns(each)
    kernels, loads = images(products)
    made = [Part(*each) for each in zip(work, products, loads, strict=True)]
    return Plan(made, [part for part in parts if not part.has_dot], kernels)

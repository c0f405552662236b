"""Products of float32 whose factors are bfloat16 digits in memory (`kernel/digits.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.dtype import bfloat16

from ..kernel import Dot
from ..kernel.digits import PRODUCTS, digits
from .operands import Step
from .scope import Ref, Scope
from .text import Block


def sum_digits(
    root: Scope, dots: Sequence[Dot], sums: Sequence[Ref], step: Callable[[], Step]
) -> None:
    """Adds the loop that fills `sums`. step: makes an empty step of it.

    Where a factor is infinite, its products with the later digits of the other one are NaN or of
    either sign. The products of the first digits say what such a sum is, so tiles that have a NaN
    take these alone for it.
    """
    names, block = root.body.names, root.block
    walk = step()
    for dot, acc in zip(dots, sums):
        part = names.fresh("part")
        for line in _products(walk, dot, part, PRODUCTS):
            walk.block.add(line)
        walk.block.add(f"{acc.text} += {part}")
    block.loop(f"for start in range(0, {walk.length}, BLOCK_K)", walk.block)
    for dot, acc in zip(dots, sums):
        first, again, repair = names.fresh("first"), step(), Block()
        for line in _products(again, dot, first, PRODUCTS[-1:], first):
            again.block.add(line)
        repair.add(f"{first} = tl.zeros_like({acc.text})")
        steps = f"tl.range(0, {again.length}, BLOCK_K, num_stages=1)"
        repair.loop(f"for start in {steps}", again.block)
        repair.add(f"{acc.text} = tl.where({acc.text} == {acc.text}, {acc.text}, {first})")
        missing = f"tl.max(({acc.text} != {acc.text}).to(tl.int32))"
        block.loop(f"if {missing} > 0", repair)


def _products(
    step: Step, dot: Dot, name: str, products: Sequence[tuple[int, int]], onto: str = ""
) -> list[str]:
    """Lines that add the products of a step's digits to `onto`, or to nothing, as `name`."""
    a, b = digits(dot.a), digits(dot.b)
    assert a is not None and b is not None
    left = {i: step.factor(a[i], "m", bfloat16) for i in sorted({i for i, _ in products})}
    right = {j: step.factor(b[j], "n", bfloat16) for j in sorted({j for _, j in products})}
    lines = []
    for i, j in products:
        more = f", {onto}" if onto else ""
        lines.append(f"{name} = tl.dot({left[i]}, {right[j]}{more})")
        onto = name
    return lines

"""Attention forward, with the running maximum and sum of each row of scores.

The maximum is subtracted before the exponentials of a block. When it grows, the sums so far are
scaled (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

import math

from ...kernel import Reduce
from ..operands import half_type
from ..scope import Ref, Scope
from ..values import write
from .writer import Walk, Writer, number, times


def forward(writer: Writer, total: Reduce) -> None:
    """Writes the results, the rows' logsumexp (`total`), or both."""
    parts, root, block = writer.parts, writer.root, writer.block
    unit = times(writer.unit)
    dot = next((d for _, d in parts.stores if d is not None), None)
    if dot is not None:
        acc = writer.zeros("acc", parts.outer)
    block.add('top = tl.full((BLOCK_M, 1), -float("inf"), tl.float32)')
    block.add("weight = tl.full((BLOCK_M, 1), 0, tl.float32)")

    def soften(walk: Walk, scores: Ref) -> None:
        """Makes scores weights: the running maximum and sum, and what fades the sums so far."""
        add = walk.block.add
        add(f"above = tl.maximum(top, tl.max({scores.text}, axis=1, keep_dims=True))")
        # A row that has seen nothing yet: exp(-inf - 0) is 0.
        add('safe = tl.where(above == -float("inf"), 0, above)')
        add(f"shift = safe{unit}")
        # The difference comes first: where the maximum stays, this must be exactly 1, and it isn't
        # if a fused operation rounds only one of the two products.
        add(f"faded = tl.exp2((top - safe){unit})")
        weights = writer.weights(walk, scores, "shift")
        add(f"weight = weight * faded + tl.sum({weights.text}, axis=1, keep_dims=True)")
        add("top = above")
        walk.scores.cache[id(parts.weights), ()] = weights

    def multiply(rows: Scope, weights: str) -> None:
        """Adds a block's weighted values to the sums."""
        assert dot is not None
        rows.block.add(f"{acc} = {acc} * faded")
        writer.add_product(rows, weights, acc, dot, parts.outer, "v")

    def step(walk: Walk) -> None:
        soften(walk, writer.scores(walk))
        if dot is not None:
            multiply(walk.rows, writer.weighted(walk, dot.a))

    def hold(walk: Walk, scores: Ref) -> None:
        assert dot is not None
        soften(walk, scores)
        walk.block.add(f"held = {writer.weighted(walk, dot.a)}{bits}")

    def late(walk: Walk) -> None:
        scores = writer.scores(walk)
        multiply(walk.past, f"held{values}")
        hold(walk, scores)

    if dot is not None and writer.ahead:
        half = half_type(writer.dtype)
        # Weights pass from step to step as bits: of a half type that comes from the step before,
        # Triton would make a copy in shared memory for tensor cores.
        kind, bits, values = "tl.float32", "", ""
        if half:
            kind, bits, values = (
                "tl.int16",
                *(f".to({t}, bitcast=True)" for t in ("tl.int16", half)),
            )
        block.add(f"held = tl.full((BLOCK_M, BLOCK_N), 0, {kind})")
        block.add("faded = tl.full((BLOCK_M, 1), 1, tl.float32)")
        past = writer.walk_ahead(lambda walk: hold(walk, writer.scores(walk)), late)
        multiply(past, f"held{values}")
    else:
        writer.walk(step)
    rows = root.tile_names([writer.own])
    text = f"top{unit} * {number(math.log(2))} + tl.log(weight)"
    root.cache[id(total), ()] = root.assign("total", text, rows)
    if dot is not None:
        writer.result(dot, f"{acc} / tl.where(weight == 0, 1, weight)", parts.outer)
    write(root, (store for store, _ in parts.stores))

"""Attention backward: weights are computed again from the rows' logsumexp, block by block."""

from __future__ import annotations

from ...kernel import Apply
from ..values import evaluate, write
from .writer import LOG2E, Walk, Writer, number


def gradient(writer: Writer) -> None:
    """Writes the gradient of the queries, or the gradients of keys, of values, or of both."""
    parts, root = writer.parts, writer.root
    weights, back = parts.weights, parts.back
    assert weights is not None
    exponent = weights.args[0]
    assert isinstance(exponent, Apply)
    rows = exponent.args[1]
    sums = []
    for _, dot in parts.stores:
        assert dot is not None
        width = parts.outer if parts.outer in root.body.analysis.axes(dot) else parts.inner
        sums.append((dot, width, writer.zeros("acc", width)))

    def step(walk: Walk) -> None:
        scores = writer.scores(walk)
        home = walk.scores.home(walk.scores.needs(rows, ()))
        total = home.named("total", evaluate(home, rows))
        if id(exponent) not in home.cache:
            text = f"{total.text} * {number(LOG2E)}"
            home.cache[id(exponent)] = home.assign("total", text, total.tiles)
        shift = home.cache[id(exponent)].text
        walk.scores.cache[id(weights), ()] = writer.weights(walk, scores, shift)
        if back is not None:
            text = writer.products(walk, back, parts.outer)
            walk.scores.cache[id(back), ()] = walk.scores.assign("back", text, scores.tiles)
        for dot, width, acc in sums:
            writer.add_product(walk.rows, writer.weighted(walk, dot.a), acc, dot, width, "k")

    writer.walk(step)
    for dot, width, acc in sums:
        writer.result(dot, acc, width)
    write(root, (store for store, _ in parts.stores))

"""Loops as Scan: one step, written once, for any number of steps."""

from __future__ import annotations

from typing import Any

from tilewright.ir.loop import body
from tilewright.ir.op import REGISTRY, Kind

from ..align import Traced
from ..exporter import Exporter, form


@form(*(op for op in REGISTRY.values() if op.kind is Kind.LOOP))
def loop(e: Exporter, t: Traced, *inputs: str) -> str:
    sequences, states, reverse = t.attrs[:3]
    steps = [body(n.op, n.operands, n.attrs) for n in t.nodes]
    walked, carried = inputs[:sequences], inputs[sequences : sequences + states]
    # The step reads its own names for what changes, and whole operands from outside.
    each = [e.fresh("each") for _ in walked]
    before = [e.fresh("state") for _ in carried]
    nodes, results = e.step(steps, [*each, *before, *inputs[sequences + states :]])
    helper = e.onnx.helper
    after = [e.fresh("new_state") for _ in carried]
    kept = [e.fresh("kept") for _ in results]
    nodes += [
        helper.make_node("Identity", [name], [out])
        for name, out in zip([*results[:states], *results], [*after, *kept], strict=True)
    ]
    types = [r.dtype for r in steps[0][1]]

    def described(name: str, dtype: Any, rank: int) -> Any:
        return helper.make_tensor_value_info(name, e.element_type(dtype), [None] * rank)

    operands = t.operands
    given = [
        *(
            described(n, o.dtype, o.rank)
            for n, o in zip(before, operands[sequences:], strict=False)
        ),
        *(described(n, o.dtype, o.rank - 1) for n, o in zip(each, operands, strict=False)),
    ]
    ranks = [r.rank for r in steps[0][1]]
    made = [
        *(described(n, d, r) for n, d, r in zip(after, types, ranks, strict=False)),
        *(described(n, d, r) for n, d, r in zip(kept, types, ranks, strict=True)),
    ]
    found = e.add_many(
        "Scan",
        states + len(results),
        *carried,
        *walked,
        body=helper.make_graph(nodes, "step", given, made),
        num_scan_inputs=sequences,
        scan_input_directions=[int(reverse)] * sequences,
        scan_output_directions=[int(reverse)] * len(results),
    )
    flat = [e.add("Reshape", name, e.ints([-1])) for name in found[states:]]
    return flat[0] if len(flat) == 1 else e.add("Concat", *flat, axis=0)

"""Tiles of attention's kernels on one GPU, each measured: the best belong in the tables of
codegen/schedule/attention.py.

    python bench/attention_tiles.py [--json FILE] [--offline sm_90] [--passes NAME ...] [SHAPE ...]

A shape is BATCHxHEADSxLENGTHxWIDTH; the mask is causal unless --full is given. Candidates are
compiled side by side; those that spill are left out. Each one's results are compared with those of
the default before it is timed, by events around single launches, with the cache flushed before
each. With --offline nothing runs, and the table has what compilers say. Rows are saved one by one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import timing

SHAPES = ("2x16x8192x128", "8x12x1024x64")
PASSES = ("forward", "forward, logsumexp", "query gradient", "key and value gradient")
PRODUCTS = dict(zip(PASSES, (2, 2, 3, 4)))
"""Products of a score's operands that each pass makes."""
COLUMNS = (
    "shape", "pass", "own", "walked", "warps", "stages", "maps", "most", "registers", "KB",
    "resident", "predicted us", "us", "tflops", "default",
)  # fmt: skip
FLUSHED = 256 << 20
"""Bytes written to flush the cache."""
SAMPLE, MOST = 20e3, 20
"""Microseconds of a candidate's launches, and their number at most."""
TOLERANCE = 0.02
"""Largest difference from the default's results, in units of their largest element."""


def kernels(shape: tuple[int, ...], causal: bool, target: Any) -> dict[str, Any]:
    """The kernel of each pass, in bfloat16."""
    from tilewright.codegen.program import compile_graph
    from tilewright.ir import ops
    from tilewright.ir.dtype import bfloat16
    from tilewright.ir.passes.autodiff import pullback
    from tilewright.ir.passes.pipeline import lower_graph
    from tilewright.ir.shape import Size

    leaves = [ops.leaf(i, Size(shape), bfloat16) for i in range(4)]
    inputs = [ops.variable(x, i) for i, x in enumerate(leaves[:3])]

    def chained(operands: Any, *, gradients: bool) -> list[Any]:
        y = ops.scaled_dot_product_attention(*operands, causal=causal)
        roots = [y]
        if gradients:
            found = pullback({y: leaves[3]}, inputs, create_graph=True)
            roots += [found[x] for x in inputs]
        steps = compile_graph(lower_graph(roots), target).steps
        return [s.kernel for s in steps if s.kernel.is_chained]

    alone = chained(leaves[:3], gradients=False)
    return dict(zip(PASSES, alone + chained(inputs, gradients=True), strict=True))


def candidates(kernel: Any, target: Any) -> list[Any]:
    """The default, and others with whole products for each warp group and loads that run ahead.
    With descriptors two stages may do, as two programs hide each other's waits."""
    from tilewright.codegen.schedule.choices import space

    default, *others = space(kernel, target).schedules
    least = min(64, default.block_m), min(32, default.block_n)
    return [
        default,
        *(
            s
            for s in others
            if s.block_m >= least[0] and s.block_n >= least[1] and 16 * s.num_warps <= s.block_m
            if s.num_stages == 3 or (s.descriptors and s.num_stages == 2)
        ),
    ]


class Measured:
    """One pass on a card, with its operands."""

    def __init__(self, device: Any, kernel: Any, flushed: Any):
        self.device, self.kernel, self.flushed = device, kernel, flushed
        rng = np.random.default_rng(0)
        made: dict[tuple[int, str], Any] = {}
        for buffer in kernel.inputs:
            key = buffer.size, buffer.dtype.name
            if key not in made:
                made[key] = rng.standard_normal(buffer.size, np.float32).astype(buffer.dtype.np)
        self.inputs = [device.from_numpy(made[b.size, b.dtype.name]) for b in kernel.inputs]
        self.outputs = [device.empty((b.size,), b.dtype) for b in kernel.outputs]
        self.expected: list[np.ndarray] | None = None

    def away(self, launch: Any) -> float:
        """The largest difference from the results of the first launch."""
        launch([*self.outputs, *self.inputs], ())
        self.device.synchronize()
        found = [self.device.to_numpy(b).reshape(-1)[::17].astype(np.float32) for b in self.outputs]
        self.expected = self.expected or found
        gaps = (np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, self.expected))
        return float(max(gaps))

    def microseconds(self, launch: Any) -> float:
        """The median of single launches."""
        from tilewright.runtime.cuda.context import Event

        device, buffers = self.device, [*self.outputs, *self.inputs]
        times: list[float] = []
        while len(times) < MOST and sum(times) < SAMPLE:
            start, end = Event(device.context), Event(device.context)
            device.fill(self.flushed, 0)  # also gives the host time to prepare the launch
            start.record()
            launch(buffers, ())
            end.record()
            device.synchronize()
            times.append(start.milliseconds_to(end) * 1e3)
        return statistics.median(times)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from tilewright.codegen.schedule import occupancy, predict
    from tilewright.runtime import devices
    from tilewright.runtime.cuda.tuning import Triton
    from tilewright.runtime.tuner.gpu import Offline, compiled_ranks

    device = None if options.offline else devices.get(options.device)
    engine: Triton = Offline(options.offline) if device is None else device.engine
    target = engine.target
    flushed = device and device.arena(options.flushed)
    for text in options.shapes:
        shape = tuple(map(int, text.split("x")))
        batch, heads, length, width = shape
        flops = 2 * batch * heads * length * length * width / (1 if options.full else 2)
        for name, kernel in kernels(shape, not options.full, target).items():
            if name not in options.passes:
                continue
            wanted = candidates(kernel, target)
            default = wanted[0]
            usages = {s: u for s, (_, u) in compiled_ranks(engine, kernel, wanted).items()}
            good = [
                s
                for s in wanted
                if (u := usages[s]) and not u.spills and occupancy(target.chip, s.num_warps, u)
            ]
            launches = dict.fromkeys(good)
            if device is not None:
                launches = dict(zip(good, device.compile_with(kernel, good), strict=True))
                measured = Measured(device, kernel, flushed)
            for schedule, launch in launches.items():
                usage = usages[schedule]
                row = {
                    "shape": text,
                    "pass": name,
                    "own": schedule.block_m,
                    "walked": schedule.block_n,
                    "warps": schedule.num_warps,
                    "stages": schedule.num_stages,
                    "maps": schedule.descriptors,
                    "most": schedule.registers,
                    "registers": usage.registers,
                    "KB": usage.shared >> 10,
                    "resident": occupancy(target.chip, schedule.num_warps, usage),
                    "predicted us": predict(kernel, schedule, target, usage).seconds * 1e6,
                    "default": schedule == default,
                }
                if launch is not None:
                    away = measured.away(launch)
                    if not away <= TOLERANCE:  # NaN too
                        yield {**row, "error": f"results differ by {away:.3g}"}
                        continue
                    row["us"] = measured.microseconds(launch)
                    row["tflops"] = PRODUCTS[name] * flops / row["us"] * 1e-6
                yield row


def show(found: list[dict[str, Any]]) -> None:
    """Tables of each pass, the best first."""
    order = {(r["shape"], r["pass"]): None for r in found}
    for key in order:
        of_pass = [r for r in found if (r["shape"], r["pass"]) == key and "error" not in r]
        of_pass.sort(key=lambda r: r.get("us", r["predicted us"]))
        print("  ".join(f"{c:>9}" for c in COLUMNS))
        for row in of_pass:
            print("  ".join(f"{timing.text(row.get(c)):>9}" for c in COLUMNS))
    for row in found:
        if "error" in row:
            print(row)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=SHAPES)
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES, metavar="NAME")
    parser.add_argument("--full", action="store_true", help="no causal mask")
    parser.add_argument("--offline", metavar="TARGET", help="compile only, for a GPU that is away")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--flushed", type=int, default=FLUSHED, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    try:
        for row in rows(options):
            found.append(row)
            timing.save(found, options)
    finally:
        show(found)
    return found


if __name__ == "__main__":
    main()

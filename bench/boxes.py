"""Convolutions whose tiles are copied as boxes by tensor descriptors, beside runs of places whose
addresses are computed, for GPUs that need not be here.

    python bench/boxes.py [--targets sm_80 sm_90 sm_100] [--dtype bfloat16] [--json FILE]

The 3x3 layers of a ResNet-50 with batch 32, forward and the gradient of the image, each followed by
an activation and the next layer. Both schedules are the best ones by the cost model. Counted are
the machine's instructions of a step of the sum, those of the whole kernel, and registers of a
thread; times are predicted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import instructions
import timing

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule, predict
from tilewright.codegen.target import Target, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.offline import compile_offline

LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, edge of the square images
PRODUCTS = ("HMMA", "HGMMA", "UTCHMMA")


def layer(channels: int, size: int, gradient: bool, dtype: DType, target: Target) -> Kernel:
    """The kernel of a layer, or of the gradient of its image."""
    image, weight = (32, channels, size, size), (channels, channels, 3, 3)
    attrs = (1, 1), ((1, 1), (1, 1)), (1, 1), 1
    shapes = map(Size, (image, weight, weight))
    x, w, other = (ops.leaf(i, s, dtype) for i, s in enumerate(shapes))
    y = ops.conv_input_grad(x, w, image[2:], *attrs) if gradient else ops.conv(x, w, *attrs)
    program = compile_graph(lower_graph([ops.conv(ops.relu(y), other, *attrs)]), target)
    kernels = (s.kernel for s in program.steps if isinstance(s.kernel, Kernel))
    return next(k for k in kernels if k.has_dot)


def step(binary: bytes) -> int | None:
    """The instructions of the shortest loop with products."""
    found = instructions.code(binary)
    lengths = []
    for address, each in found:
        jump = re.search(r"\bBRA(?:\.\S+)? .*?(0x[0-9a-f]+)\)?$", each)
        if jump and int(jump[1], 16) < address:
            body = [i for a, i in found if int(jump[1], 16) <= a <= address]
            if any(p in i for i in body for p in PRODUCTS):
                lengths.append(len(body))
    return min(lengths, default=None)


def figures(kernel: Kernel, schedule: Schedule, target: Target) -> dict[str, Any]:
    made = compile_offline(kernel, target.name, schedule)
    usage = made.usage
    return {
        "tile": [schedule.block_m, schedule.block_n, schedule.block_k],
        "box": list(schedule.box),
        "warps": made.num_warps,
        "step": step(made.binary),
        "instructions": len(instructions.code(made.binary)),
        "registers": made.registers,
        "spills": made.spills,
        "us": round(predict(kernel, schedule, target, usage).seconds * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--targets", nargs="*", default=("sm_80", "sm_90", "sm_100"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.targets:
        target = gpu(name)
        without = replace(target, chip=replace(target.chip, tensor_maps=False))
        for channels, size in LAYERS:
            for gradient in (False, True):
                dtype = getattr(dt, options.dtype)
                kernel = layer(channels, size, gradient, dtype, target)
                row = {
                    "target": name,
                    "layer": f"{channels}, {size}x{size}",
                    "pass": "image's gradient" if gradient else "forward",
                    "runs": figures(kernel, default_schedule(kernel, without), target),
                    "taken": figures(kernel, default_schedule(kernel, target), target),
                }
                rows.append(row)
                print(*row.values(), flush=True)
    if options.json:
        about = {
            "dtype": options.dtype,
            "versions": timing.versions("triton"),
            "date": datetime.date.today().isoformat(),
        }
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Instructions that an element of each op takes on a GPU that need not be here.

    python bench/instructions.py [--target sm_90] [--dtype bfloat16] [--only tanh …] [--json FILE]

Each op is compiled as a map of a million elements, eight for each thread. What is counted is the
machine's code, load, store and conversions included, with both sides of its branches: the slow
path of a sine, which few arguments take, counts too. A map of halves on an H100 hides some 27
instructions behind its memory. `cost` is what the cost model takes for the op itself.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import timing

from tilewright.codegen.kernel import Apply, Buffer, Kernel, Load, Store
from tilewright.codegen.kernel import index as ix
from tilewright.codegen.kernel.index import Axis
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import FLOAT, HALVES, DType
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.runtime import offline

COUNT, BLOCK, WARPS = 1 << 20, 1024, 4


def one(op: Op, arity: int, dtype: DType) -> Kernel:
    """y[i] = op(x0[i], …), computed in float32 for halves."""
    axis = Axis("p0", COUNT)
    wide = dt.float32 if dtype in HALVES else dtype
    args = [Load(Buffer(f"x{i}", dtype, COUNT), ix.of(axis), wide) for i in range(arity)]
    value = Apply(op, tuple(args), wide)
    return Kernel(op.name, (axis,), (), (Store(Buffer("y", dtype, COUNT), ix.of(axis), value),))


def code(binary: bytes) -> list[str]:
    """The instructions of a cubin, but those that fill up its last line."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary)
        text = subprocess.run(
            [str(tool), "-sass", file.name], capture_output=True, text=True, check=True
        ).stdout
    return [i for i in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", text) if i != "NOP"]


def counted(op: Op, dtype: DType, target: str) -> dict[str, Any] | None:
    """The figures of one op; None if it takes no numbers of this type."""
    for arity in (1, 2, 3):
        try:
            emitted = emit(one(op, arity, dtype), Schedule(block=BLOCK, num_warps=WARPS))
            made = offline.compile_request(offline.request(emitted, target))
        except Exception:  # whatever Triton says of an arity or a type that doesn't fit
            continue
        found = code(made.binary)
        each = len(found) * WARPS * 32 / BLOCK
        calls = sum("CALL" in i for i in found)
        return {
            "op": op.name,
            "instructions": round(each, 1),
            "cost": op.cost,
            "registers": made.registers,
            "spills": made.spills,
            "calls": calls,
        }
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dtype = getattr(dt, options.dtype)
    assert dtype.category == FLOAT, "only maps of floats are counted"
    rows = []
    for name, op in REGISTRY.items():
        if op.kind is not Kind.ELEMENTWISE or (options.only and name not in options.only):
            continue
        row = counted(op, dtype, options.target)
        if row is not None:
            rows.append(row)
            print(" ".join(f"{v:>14}" for v in row.values()), flush=True)
            if options.json:
                about = {
                    "target": options.target,
                    "dtype": options.dtype,
                    "versions": timing.versions("triton"),
                    "date": datetime.date.today().isoformat(),
                }
                options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

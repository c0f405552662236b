"""Instructions that an element of each op takes on a GPU that need not be here.

    python bench/instructions.py [--target sm_90] [--dtype bfloat16] [--only tanh …] [--json FILE]
    python bench/instructions.py --write

Each op is compiled as a map of a million elements, eight for each thread. `instructions` counts the
machine's code, load, store and conversions included, with both sides of its branches: the slow
path of a sine, which few arguments take, counts too. A map of halves on an H100 hides some 27
instructions behind its memory. `cost` is `Op.cost`.

`own` is what the op itself takes of a multiprocessor's time, in instructions: those of the shortest
way through the code, less those of the cheapest op of as many operands. The unit for functions has
16 lanes where others have 128: where it is busy longer, its instructions count eight times.
`--write` counts float32 for sm_90 and writes the table of the cost model,
`codegen/instructions.py`. Ops whose code loops or calls on the shortest way aren't in it.
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
from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT, HALVES, DType
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.runtime import offline

COUNT, BLOCK, WARPS = 1 << 20, 1024, 4
SLOW = 8  # lanes of other units for one of the unit for functions
TABLE = Path(__file__).parent.parent / "codegen" / "instructions.py"
TEXT = '''"""Instructions that an element of each op takes on a GPU, counted in the machine's code.

Written by `python bench/instructions.py --write`: float32 for sm_90, Triton {version}.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.ir import ops
from tilewright.ir.op import Op

INSTRUCTIONS: Mapping[Op, int] = MappingProxyType(
    {{
{lines}    }}
)
"""The time of ops in instructions; that of others is `Op.cost`."""
'''


def one(op: Op, arity: int, dtype: DType) -> Kernel:
    """y[i] = op(x0[i], …), computed in float32 for halves."""
    axis = Axis("p0", COUNT)
    wide = dt.float32 if dtype in HALVES else dtype
    args = [Load(Buffer(f"x{i}", dtype, COUNT), ix.of(axis), wide) for i in range(arity)]
    value = Apply(op, tuple(args), wide)
    return Kernel(op.name, (axis,), (), (Store(Buffer("y", dtype, COUNT), ix.of(axis), value),))


def code(binary: bytes) -> list[tuple[int, str]]:
    """The addresses and instructions of a cubin, but those that fill up its last line."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary)
        text = subprocess.run(
            [str(tool), "-sass", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", text)
    return [(int(address, 16), each.strip()) for address, each in found if each != "NOP"]


def shortest(found: list[tuple[int, str]]) -> tuple[int, int] | None:
    """The instructions of the shortest way from the first one to the end, and those among them of
    the unit for functions; None if it has loops or calls."""
    place = {address: i for i, (address, _) in enumerate(found)}
    ways: list[tuple[int, int] | None] = [None] * (len(found) + 1)
    for i in reversed(range(len(found))):
        each = found[i][1]
        guarded, name = each.startswith("@"), re.sub(r"^@!?U?P\w+ ", "", each).split()[0]
        follows = [ways[i + 1]]
        if name.split(".")[0] in ("BRA", "CALL", "RET", "EXIT"):
            follows = follows if guarded else []
            target = re.search(r"(0x[0-9a-f]+)\)?$", each)
            ahead = place.get(int(target[1], 16), 0) if target else 0
            if name.startswith("BRA") and ahead > i:
                follows.append(ways[ahead])
            elif name.startswith("EXIT") and not guarded:
                follows.append((0, 0))
        least = min((way for way in follows if way is not None), default=None)
        if least is not None:
            ways[i] = least[0] + 1, least[1] + name.startswith("MUFU")
    return ways[0]


def counted(op: Op, dtype: DType, target: str) -> dict[str, Any] | None:
    """The figures of one op; None if it takes no numbers of this type."""
    for arity in (1, 2, 3):
        try:
            emitted = emit(one(op, arity, dtype), Schedule(block=BLOCK, num_warps=WARPS))
            made = offline.compile_request(offline.request(emitted, target))
        except Exception:  # whatever Triton says of an arity or a type that doesn't fit
            continue
        found, each = code(made.binary), WARPS * 32 / BLOCK
        way = shortest(found)
        return {
            "op": op.name,
            "instructions": round(len(found) * each, 1),
            "way": None if way is None else (way[0] * each, way[1] * each),
            "arity": arity,
            "cost": op.cost,
            "registers": made.registers,
            "spills": made.spills,
            "calls": sum("CALL" in i for _, i in found),
        }
    return None


def owned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what each op takes itself, instead of its whole way."""
    least = {
        arity: min(r["way"][0] for r in rows if r["arity"] == arity and r["way"])
        for arity in {r["arity"] for r in rows}
    }
    out = []
    for row in rows:
        way, arity = row["way"], row["arity"]
        own = None
        if way is not None:
            own = round(max(way[0] - least[arity] + 1, SLOW * way[1]), 1)
        rest = {k: v for k, v in row.items() if k not in ("way", "arity")}
        out.append(
            {"op": rest.pop("op"), "instructions": rest.pop("instructions"), "own": own, **rest}
        )
    return out


def write(rows: list[dict[str, Any]]) -> None:
    """Write the table of the cost model."""
    import triton

    names = {id(op): name for name, op in vars(ops).items() if isinstance(op, Op)}
    counts = {
        names[id(REGISTRY[r["op"]])]: max(1, round(r["own"]))
        for r in rows
        if r["own"] is not None and id(REGISTRY[r["op"]]) in names
    }
    lines = "".join(f"        ops.{name}: {count},\n" for name, count in sorted(counts.items()))
    TABLE.write_text(TEXT.format(version=triton.__version__, lines=lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        options.target, options.dtype = "sm_90", "float32"
    dtype = getattr(dt, options.dtype)
    assert dtype.category == FLOAT, "only maps of floats are counted"
    rows = []
    for name, op in REGISTRY.items():
        if op.kind is not Kind.ELEMENTWISE or (options.only and name not in options.only):
            continue
        if op in (ops.cast, ops.bitcast) and options.write:
            continue  # nothing between float32 and itself
        row = counted(op, dtype, options.target)
        if row is not None:
            rows.append(row)
            print(" ".join(f"{v!s:>14}" for v in row.values()), flush=True)
    found = owned(rows)
    if options.write:
        write(found)
    if options.json:
        about = {
            "target": options.target,
            "dtype": options.dtype,
            "versions": timing.versions("triton"),
            "date": datetime.date.today().isoformat(),
        }
        options.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

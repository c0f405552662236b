"""Random programs on every engine of the CPU, compared with each other and with float64.

    python tests/support/fuzz_backends.py --minutes 60 [--seed N] [--only llvm,numpy,interpret]

Programs run in child processes, so that a crash is found too and leaves the next ones alone. What
fails is printed with its seed, cut down to few lines.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from graphs import reference
from random_programs import Program
from random_steps import random_program

from tilewright.ir.node import Node, clear_tables, reachable
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime import devices
from tilewright.runtime.cpu.native import make
from tilewright.runtime.device import Device
from tilewright.runtime.plan import Plan

ULPS, HALF_ULPS = 512, 24
"""The allowed difference between engines, beyond their distance from float64. The unit is the last
place of the largest element of a result. The second number is for half types."""
SLOW_SHARE = 16  # every 16th program runs on Triton's interpreter too


class Failure(Exception):
    """Two engines, or an engine and the oracle, disagree."""


@functools.cache
def device(name: str) -> Device:
    """The engine `llvm`, `numpy` or `interpret`."""
    return devices.get("interpret") if name == "interpret" else make(name)


@contextmanager
def as_cpu(engine: Device) -> Iterator[None]:
    before = devices._devices.get("cpu")
    devices._devices["cpu"] = engine
    name, engine.name = engine.name, "cpu"  # plans look up results by this name
    try:
        yield
    finally:
        engine.name = name
        if before is None:
            del devices._devices["cpu"]
        else:
            devices._devices["cpu"] = before


def run(program: Program, engine: Device) -> list[np.ndarray]:
    """The roots from two runs. In the second run results may take over the memory of leaves."""
    nodes = program.nodes()
    with as_cpu(engine):
        plan = Plan([nodes[r] for r in program.roots])
        first = _values(plan, program, engine, ())
        second = _values(plan, program, engine, program.donated)
    for name, a, b in zip(program.roots, first, second):
        if a.tobytes() != b.tobytes():
            raise Failure(f"{name}: other bits when run again")
    return first


def _values(plan: Plan, program: Program, engine: Device, donated: Any) -> list[np.ndarray]:
    buffers = [engine.from_numpy(a) for a in program.data]
    found = plan.run(buffers, [s.item() for s in program.scalars], donated)
    return [np.array(engine.to_numpy(b), order="C") for b in found]


def expected(program: Program) -> list[np.ndarray]:
    """The roots, computed node by node in float64."""
    nodes = program.nodes(wide=True)
    roots = lower_graph([nodes[r] for r in program.roots])
    leaves: dict[Node, Any] = {}
    for node in reachable(roots):
        if node.op.name == "leaf":
            leaves[node] = program.data[node.attrs[0]].astype(node.dtype.np)
        elif node.op.name == "scalar":
            leaves[node] = np.asarray(program.scalars[node.attrs[0]]).astype(node.dtype.np)
    return reference(roots, leaves)


def compare(program: Program, results: dict[str, list[np.ndarray]]) -> None:
    """Raise Failure if two engines differ, or if one is farther from float64 than `numpy`."""
    with np.errstate(all="ignore"):
        wide = expected(program)
        nodes = program.nodes()
        for at, root in enumerate(program.roots):
            node = nodes[root]
            if node.dtype.is_floating_point:
                found = {e: r[at].astype(np.float64) for e, r in results.items()}
            else:
                found = {e: r[at] for e, r in results.items()}
            for name, value in found.items():
                if value.shape != tuple(node.shape):
                    raise Failure(f"{root} on {name}: shape {value.shape}, not {node.shape}")
            exact = program.exact[root]
            _compare(root, exact, program.digits, found, wide[at])


def _compare(
    root: str, exact: bool, digits: int, found: dict[str, np.ndarray], wide: np.ndarray
) -> None:
    if exact:
        for name, value in found.items():
            if not np.array_equal(value, wide, equal_nan=value.dtype.kind == "f"):
                raise Failure(f"{root} on {name}: {_difference(value, wide)}")
        return
    base = found["numpy"]
    finite = np.isfinite(base) & np.isfinite(wide)
    size = float(np.abs(wide[finite]).max(initial=1.0))
    own = float(np.abs(base[finite] - wide[finite]).max(initial=0.0))
    ulps = ULPS if digits > 11 else HALF_ULPS
    tolerance = 30 * own + ulps * 2.0**-digits * size
    for name, value in found.items():
        if name == "numpy":
            continue
        same = np.where(np.isfinite(base), np.isfinite(value), _same_special(value, base))
        if not same.all():
            raise Failure(f"{root} on {name}: {_difference(value, base)}")
        off = np.abs(value[finite] - base[finite])
        if off.size and not float(off.max()) <= tolerance:
            raise Failure(
                f"{root} on {name}: off by {off.max():.3g}, may be {tolerance:.3g}: "
                f"{_difference(value, base)}"
            )


def _same_special(a: np.ndarray, b: np.ndarray) -> Any:
    return (np.isnan(a) & np.isnan(b)) | (a == b)


def _difference(a: np.ndarray, b: np.ndarray) -> str:
    with np.errstate(all="ignore"):
        off = np.atleast_1d(~((a == b) | ((a != a) & (b != b))))
    if a.dtype.kind == "f":
        gap = np.nan_to_num(np.abs(np.atleast_1d(a) - np.atleast_1d(b)), nan=np.inf)
        where = np.unravel_index(int(np.argmax(np.where(off, gap, -1))), off.shape)
    else:
        where = np.unravel_index(int(np.argmax(off)), off.shape)
    at = ", ".join(str(int(i)) for i in where)
    return (
        f"{int(off.sum())} of {off.size} differ, as at [{at}]: "
        f"{np.atleast_1d(a)[where]} and {np.atleast_1d(b)[where]}"
    )


def attempt(program: Program, engines: Sequence[str]) -> None:
    """Run a program on the engines and compare. Raises any error."""
    compare(program, {name: run(program, device(name)) for name in engines})


# ---- cutting down --------------------------------------------------------------------------------


def smallest(program: Program, engines: Sequence[str]) -> Program:
    """A shorter program that fails too."""
    for root in program.roots:
        one = only(program, root)
        if fails(one, engines):
            program = one
            break
    for name, _ in program.lines:
        one = only(program, name)
        if fails(one, engines):
            program = one
            break
    done = False
    while not done:
        done = True
        for name, text in reversed(program.lines[:-1]):
            if text.startswith("leaf("):
                continue
            shorter = _as_leaf(program, name)
            if shorter is not None and fails(shorter, engines):
                program, done = shorter, False
                break
    return program


def only(program: Program, root: str) -> Program:
    """The program with only the lines that `root` needs."""
    texts = dict(program.lines)
    wanted: set[str] = set()
    stack = [root]
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack += [n for n in texts if n != name and _mentions(texts[name], n)]
    lines = [(n, t) for n, t in program.lines if n in wanted]
    donated = [(0, leaf) for r, leaf in program.donated if program.roots[r] == root]
    return replace(program, lines=lines, roots=[root], donated=donated)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _as_leaf(program: Program, name: str) -> Program | None:
    """The program with the line `name` replaced by a leaf with its value."""
    node = program.nodes()[name]
    try:
        (value,) = run(only(program, name), device("numpy"))
    except Exception:
        return None
    dtype = node.dtype.name if node.dtype.name != "bool" else "bool_"
    text = f"leaf({len(program.data)}, {tuple(node.shape)}, {dtype})"
    lines = [(n, text if n == name else t) for n, t in program.lines]
    shorter = replace(program, lines=lines, data=[*program.data, value])
    return only(shorter, program.roots[0])


def fails(program: Program, engines: Sequence[str]) -> bool:
    try:
        attempt(program, engines)
    except Exception:
        return True
    return False


# ---- the script ----------------------------------------------------------------------------------


def engines_of(seed: int, only_: Sequence[str] = ()) -> list[str]:
    """The engines for the program of a seed."""
    names = ["numpy", "llvm"] + ["interpret"] * (seed % SLOW_SHARE == 0)
    return [n for n in names if n == "numpy" or not only_ or n in only_]


def of_seed(seed: int) -> Program:
    return random_program(random.Random(seed), small=seed % SLOW_SHARE == 0)


def child(first: int, count: int, only_: Sequence[str]) -> int:
    """Run programs, and print each seed before its run. Returns the number of failures."""
    failures = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        program = of_seed(seed)
        engines = engines_of(seed, only_)
        try:
            attempt(program, engines)
        except Exception as error:
            failures += 1
            print(f"FAILED {type(error).__name__}: {error}")
            print(smallest(program, engines), flush=True)
        clear_tables()
    return failures


def in_children(
    script: str, seed: int, minutes: float, batch: int, arguments: Sequence[str] = ()
) -> tuple[int, int]:
    """Run batches of seeds in child processes until the time is over: (tried, failed)."""
    end = time.monotonic() + minutes * 60
    tried = failed = 0
    while time.monotonic() < end:
        command = [sys.executable, script, "--seed", str(seed), "--count", str(batch), *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TW_CACHE": "0"},
        )
        assert process.stdout is not None
        last, told = seed, ""
        for line in process.stdout:
            if line.startswith("seed "):
                if told:
                    print(f"seed {last}\n{told}", flush=True)
                last, told, tried = int(line.split()[1]), "", tried + 1
                if time.monotonic() > end:
                    process.kill()
            else:
                told += line
                failed += line.startswith("FAILED")
        status = process.wait()
        if told:
            print(f"seed {last}\n{told}", flush=True)
        if status not in (0, 1) and time.monotonic() <= end:
            failed += 1
            print(f"seed {last}: the process ended with status {status}", flush=True)
        seed = last + 1 if status not in (0, 1) else seed + batch
    return tried, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    parser.add_argument("--count", type=int, default=0, help="run so many here, in this process")
    parser.add_argument("--only", default="", help="engines beside numpy, separated by commas")
    options = parser.parse_args()
    only_ = [n for n in options.only.split(",") if n]
    if options.count:
        sys.exit(bool(child(options.seed, options.count, only_)))
    tried, failed = in_children(
        __file__, options.seed, options.minutes, 200, ["--only", options.only]
    )
    print(f"{tried} programs from seed {options.seed} on, {failed} failures")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

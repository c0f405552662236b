"""Random programs over half types and float32, whose values are read at different moments.

    python tests/support/rounding_programs.py --programs N [--seed S] [--device interpret]

runs N programs, each without reads, with a read after each line, with random reads, and op by op,
and compares bits.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.recording import clock

DTYPES = ("float16", "bfloat16", "float32")
SIZES = (1, 3, 7, 8, 16, 17, 33, 100, 257)

# Calls that PyTorch computes with IEEE arithmetic and rounds once, on every engine.
EXACT = (
    "{x} + {y}",
    "{x} - {y}",
    "{x} * {y}",
    "{x} * {y} + {x}",
    "{x} / ({y}.abs() + 0.5)",
    "{x}.abs().sqrt()",
    "-{x}",
    "{x}.relu()",
    "tw.maximum({x}, {y})",
    "{x}.clamp(-1.5, 2.0)",
    "tw.where({x} > {y}, {x}, {y} * 0.25)",
    "({x} < {y}).to({x}.dtype) - {x}",
    "{x} * 0.3",
    "{x} / 3",
    "{x} + 1.1",
    "1.5 - {x}",
    "{x} * {x}",
    "{x}.to(tw.{dtype})",
    "{x}.float() * 1.7",
    "{x}.flip(0) - {x}",
    "{x}.reshape(-1).reshape({x}.shape) * {y}",
)
SMOOTH = (
    "{x}.exp()",
    "{x}.tanh()",
    "{x}.sigmoid() * {y}",
    "({x}.abs() + 0.1).log()",
    "{x}.sin() + {y}.cos()",
    "tw.nn.functional.gelu({x})",
    "tw.nn.functional.gelu({x}, approximate='tanh') + {y}",
    "tw.nn.functional.silu({x}) * {y}",
    "tw.nn.functional.softplus({x})",
    "{x}.lerp({y}, 0.3)",
    "tw.addcmul({x}, {x}, {y}, value=0.7)",
    "({x}.abs() + 0.5).rsqrt()",
    "{x}.exp() / ({y}.abs() + 1)",
    "({x}.abs() + 0.2) ** 1.7",
    "tw.full_like({x}, 0.3).exp() * {x}",
    "tw.atan2({x}, {y})",
)


class Program:
    """lines: (name, text); leaves: the arrays by name."""

    def __init__(self, seed: int, templates: Collection[str], gradient: bool = False):
        choose = random.Random(seed)
        data = np.random.default_rng(seed)
        self.seed = seed
        shape = tuple(choose.choice(SIZES) for _ in range(choose.choice((1, 2, 2))))
        self.leaves: dict[str, tuple[np.ndarray, str]] = {}
        self.lines: list[tuple[str, str]] = []
        names: list[str] = []
        main = choose.choice(DTYPES)
        for i in range(choose.randint(2, 3)):
            # The gradient of a broadcast operand is a sum, whose order may differ.
            smaller = (shape,) if gradient else (shape, shape[-1:], (*shape[:-1], 1))
            of = shape if i == 0 else choose.choice(smaller)
            scale = choose.choice((1, 1, 4, 300 if not gradient else 1))
            array = (data.standard_normal(of) * scale).astype(np.float32)
            dtype = main if choose.random() < 0.8 else choose.choice(DTYPES)
            self.leaves[f"x{i}"] = array, dtype
            names.append(f"x{i}")
        full = ["x0"]
        used: Counter[str] = Counter()

        def free(found: list[str], uses: int) -> list[str]:
            # A gradient is a sum over uses. A sum of two has the same bits in any order.
            return [n for n in found if not gradient or used[n] + uses <= 2]

        if gradient:  # without aliases, and without a tensor that one call uses in several ways
            templates = [t for t in templates if "lerp" not in t and ".to(tw" not in t]
        seen: set[Any] = set()
        for i in range(choose.randint(3, 12)):
            text = choose.choice(sorted(templates))
            each = Counter({"x": text.count("{x}"), "y": text.count("{y}")})

            x, y = free(full[-3:], each["x"]), free(names[-5:], each["y"])
            if not x or not y or (gradient and x == y):
                continue
            first = choose.choice(x)
            second = choose.choice([n for n in y if not gradient or n != first])
            dtype = choose.choice((main, main, *DTYPES))
            whole = text.format(x=first, y=second, dtype=dtype)
            # Equal expressions become one tensor, with the uses of both.
            parts = {(text, first), (text, second), *re.findall(r"[xv]\d+\.\w+", whole)}
            if gradient and seen & parts:
                continue
            seen |= parts
            used[first] += each["x"]
            used[second] += each["y"]
            text = whole
            self.lines.append((f"v{i}", text))
            names.append(f"v{i}")
            full.append(f"v{i}")
        self.ends = [n for n in full if n[0] == "v" and used[n] < 2]
        self.gradient = gradient
        self.reads = {name for name, _ in self.lines if choose.random() < 0.4}

    def run(self, lib: Any, read: Collection[str] = (), device: str = "cpu") -> dict[str, Any]:
        """The bits of all lines, and of gradients. Lines in `read` are read at once."""
        scope: dict[str, Any] = {"tw": lib}
        for name, (array, dtype) in self.leaves.items():
            t = lib.tensor(array).to(device).to(getattr(lib, dtype)).detach()
            scope[name] = t.requires_grad_() if self.gradient else t
        found = {}
        for name, text in self.lines:
            scope[name] = eval(text, scope)
            if name in read:
                found[name] = bits(scope[name])
        if self.gradient:
            sum(scope[n].double().sum() for n in self.ends).backward()
            for name in self.leaves:
                if scope[name].grad is not None:
                    found[f"{name}.grad"] = bits(scope[name].grad)
        for name, _ in self.lines:
            found.setdefault(name, bits(scope[name]))
        return found

    def __str__(self) -> str:
        leaves = [f"{n}: {d}{list(a.shape)}" for n, (a, d) in self.leaves.items()]
        return "\n".join([f"seed {self.seed}", *leaves, *(f"{n} = {t}" for n, t in self.lines)])


def bits(t: Any) -> np.ndarray:
    """The bits of a tensor's elements. Every NaN has the same bits."""
    wide = t.detach().float().cpu().numpy()
    return np.where(np.isnan(wide), np.float32(np.nan), wide).view(np.uint32)


def op_by_op(run: Callable[[], Any]) -> Any:
    """The result of `run` with each op run at its call, as under TW_EAGER=1."""
    before = clock.limit
    clock.limit = 0
    try:
        return run()
    finally:
        clock.limit = before


def differences(program: Program, device: str = "cpu") -> list[str]:
    """Descriptions of differences between a program's runs and the run without early reads."""
    every = {name for name, _ in program.lines}
    plain = program.run(tw, device=device)
    others = {
        "again": program.run(tw, device=device),
        "all read": program.run(tw, every, device),
        "some read": program.run(tw, program.reads, device),
        "op by op": op_by_op(lambda: program.run(tw, device=device)),
    }
    return [
        f"{name} of {how}: {np.sum(plain[name] != values[name])} of {plain[name].size}"
        for how, values in others.items()
        for name in plain
        if not np.array_equal(plain[name], values[name])
    ]


def made(seed: int) -> Program:
    """The program of a seed: of both kinds, with gradients and without."""
    return Program(seed, (EXACT, EXACT + SMOOTH)[seed % 2], gradient=seed // 2 % 2 == 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    failed = 0
    for seed in range(args.seed, args.seed + args.programs):
        program = made(seed)
        found = differences(program, args.device)
        if found:
            failed += 1
            print(program, *found, sep="\n", end="\n\n", flush=True)
    print(f"{args.programs} programs, {failed} with differences")


if __name__ == "__main__":
    main()

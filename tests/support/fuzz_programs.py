"""Random training scripts under tilewright, step by step beside PyTorch.

    python tests/support/fuzz_programs.py --minutes 60 [--seed N]

Scripts run in child processes, so that a crash is found too. What differs is cut down to few lines
and printed as Python that can be pasted.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from typing import Any

from fuzz_backends import in_children
from paths import TESTS

sys.path.insert(0, str(TESTS))  # the folder of tests/programs, where this file is run by hand

from program_runs import difference, engine, limit, run
from random_training import Line, describe, program_of, refused, repaired, script, smallest, text_of

import tilewright as tw
from tilewright import recording

STEPS, SECONDS = 4, 30


def ways(seed: int) -> tuple[str, bool]:
    """The engine, and whether values are read at the end only."""
    return ("auto", "eager", "auto", "fused", "numpy")[seed % 5], seed % 3 == 0


def wrong(lines: list[Line], torch: Any, on: str, late: bool) -> str | None:
    """A difference between tilewright and PyTorch."""
    program = program_of(lines)
    wanted = run(torch, program, STEPS, late=late, dtype="float64")
    if refused(lines, torch, STEPS) is not None:
        return None
    try:
        with limit(SECONDS), engine(on):
            found = run(tw, program, STEPS, late=late, dtype="float64")
            recording.flush()
    except Exception as error:
        return describe(error)
    return None if _computed_twice(found) else difference(found, wanted)


def _computed_twice(found: list[Any]) -> bool:
    """Whether a script hooks one of two tensors that the same expression computed: a documented
    difference, which the error names."""
    last = found[-1] if found else None
    return isinstance(last, tuple) and last[0] == "fails" and "the same expression" in last[2]


def check(seed: int, torch: Any) -> str | None:
    """The shortened script of a seed and its error; None if it is right."""
    on, late = ways(seed)
    lines = repaired(script(random.Random(seed)), torch, STEPS)
    first = wrong(lines, torch, on, late)
    if first is None:
        return None
    lines = smallest(lines, lambda fewer: _fails(fewer, torch, on, late))
    where = f"# {on}, looked at {'in the end' if late else 'at each step'}, seed {seed}"
    return f"{first}\n{where}\n{text_of(lines)}{wrong(lines, torch, on, late)}"


def _fails(lines: list[Line], torch: Any, on: str, late: bool) -> bool:
    try:
        return wrong(lines, torch, on, late) is not None
    except Exception:  # not a valid program any more
        return False


def child(first: int, count: int) -> int:
    """Run scripts, and print each seed before its run. Returns the number of failures."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failures = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        found = check(seed, torch)
        if found is not None:
            failures += 1
            print(f"FAILED {found}", flush=True)
        recording.clear_tables()
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    parser.add_argument("--count", type=int, default=0, help="run so many here, in this process")
    options = parser.parse_args()
    if options.count:
        sys.exit(bool(child(options.seed, options.count)))
    tried, failed = in_children(__file__, options.seed, options.minutes, batch=50)
    print(f"{tried} scripts from seed {options.seed} on, {failed} failures")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

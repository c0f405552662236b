"""KernelBench's levels 1 and 2 beside PyTorch eager: 200 small programs, interleaved.

    python bench/kernelbench.py [--device cpu] [--level 1 2] [--only 2.34 softmax ...] [--small]
                                [--json FILE] [--resume] [--minutes N] [--threads N]
    python bench/kernelbench.py --offline [--target sm_90]

On a GPU the problems have their full sizes, which take up to 40 GB; on a CPU reduced ones. Results
are compared first: for reduced sizes with PyTorch's in float64, for full sizes with PyTorch's own.
Only the forward pass is measured, in training mode, as in KernelBench. The two levels take turns
and rows are saved one by one, so an interrupted run covers both; --resume continues it. --offline
runs nothing: it compiles the kernels for a GPU and predicts their times.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import timing
from card import Card, errors, interleaved, sample
from problems import FULL, LEVELS, REDUCED, SMALL, Problem, Scale, Source

GOALS = {1: 1.3, 2: 1.6}
COLUMNS = ("name", "ours_ms", "torch_ms", "ratio")
FLOAT32 = 1e-5
"""The error that is always allowed, since PyTorch sums in another order."""
TF32 = 5e-3
"""The error that a product may have where PyTorch rounds operands to TF32, as in convolutions."""


def chosen(levels: Sequence[int], only: Sequence[str]) -> list[tuple[str, Problem]]:
    """Problems with names such as "2.34 conv transpose3d, layer norm, gelu, scale". The levels take
    turns. only: the numbers of problems (2.34), or parts of their names."""
    named = (
        [(f"{level}.{i} {p.name}", p) for i, p in enumerate(LEVELS[level], 1)] for level in levels
    )
    turns = itertools.chain.from_iterable(itertools.zip_longest(*named))
    found = [each for each in turns if each is not None]
    return [(n, p) for n, p in found if not only or any(_named(n, each) for each in only)]


def _named(name: str, wanted: str) -> bool:
    return name.split()[0] == wanted if wanted[:1].isdigit() else wanted in name


def prepared(
    problem: Problem,
    torch: Any,
    scale: Scale,
    device: str,
    exact: bool = False,
    dropout: bool = True,
) -> Callable[[], Any]:
    """A call of the problem on its inputs. exact: in float64. dropout: whether dropout is on, which
    differs between frameworks."""
    with torch.no_grad():
        inputs = problem.draw(torch, scale, device)
        model = Source(torch, device, seed=1).filled(problem.model(torch, scale))
        if exact:
            model = model.double()
            inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.train(dropout)

    def step() -> Any:
        with torch.no_grad():
            return model(*inputs)

    return step


def compare(problem: Problem, scale: Scale, device: str, tw: Any, torch: Any) -> dict[str, float]:
    """Our largest error and PyTorch's, in units of the largest element. AssertionError if ours is
    much larger, or shape or dtype differ."""

    def result(framework: Any, exact: bool = False) -> Any:
        return prepared(problem, framework, scale, device, exact, dropout=False)()

    results = result(torch), result(tw)
    kinds = [(tuple(r.shape), str(r.dtype).rpartition(".")[2]) for r in results]
    assert kinds[0] == kinds[1], f"expected {kinds[0]}, got {kinds[1]}"
    theirs, ours = map(sample, results)
    del results
    if not theirs.is_floating_point():  # positions, which may differ for equal elements
        differ = float(np.mean(ours.numpy() != theirs.numpy()))
        assert differ < 1e-3, f"{differ:.2%} of the positions differ"
        return {"our_error": differ}
    if scale is FULL:
        expected, known, allowed = theirs.double().numpy(), 0.0, TF32
    else:
        expected = sample(result(torch, exact=True)).numpy()
        known, allowed = errors([theirs], [expected]), FLOAT32
    mine = errors([ours], [expected])
    allowed = max(allowed, 1e-3 if theirs.dtype is torch.float16 else 0.0, 4 * known)
    assert mine <= allowed, f"our error is {mine:.3g} of the largest element, PyTorch's {known:.3g}"
    return {"our_error": mine, "torch_error": known}


def measure(
    problem: Problem, scale: Scale, device: str, tw: Any, torch: Any | None
) -> dict[str, Any]:
    """Milliseconds of a call, ours and PyTorch's, and our speedup."""
    found: dict[str, Any] = {}
    if torch is not None:
        found |= compare(problem, scale, device, tw, torch)
    steps = {
        name: prepared(problem, framework, scale, device)
        for name, framework in (("ours", tw), ("torch", torch))
        if framework is not None
    }
    if device.startswith("cuda"):
        cards = {"ours": Card(tw, device)}
        if torch is not None:
            cards["torch"] = Card(torch, device)
        times = interleaved({name: (cards[name], step) for name, step in steps.items()}, rounds=3)
    else:
        times = on_cpu(steps)
    found |= {f"{name}_ms": ms for name, ms in times.items()}
    if torch is not None:
        found["ratio"] = times["torch"] / times["ours"]
    return found


def on_cpu(steps: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds of each step. Ours ends with a flush."""
    from tilewright import recording

    def flushed() -> None:
        result = steps["ours"]()
        recording.flush()
        del result

    candidates = {**steps, "ours": flushed}
    for step in candidates.values():  # compiles
        step()
    start = time.perf_counter()
    for step in candidates.values():
        step()
    each = (time.perf_counter() - start) / len(candidates)
    inner = max(1, min(5, int(0.02 / each)))
    seconds = timing.interleaved(candidates, rounds=7, inner=inner, warm=1)
    return {name: s * 1e3 for name, s in seconds.items()}


def rows(
    problems: Sequence[tuple[str, Problem]],
    scale: Scale,
    device: str,
    tw: Any,
    torch: Any | None,
    end: float,
) -> Iterator[dict[str, Any]]:
    """The measurements of each problem."""
    sharing = (tw, torch) if torch is not None and device.startswith("cuda") else ()
    return each_row(problems, scale, lambda p: measure(p, scale, device, tw, torch), end, sharing)


def each_row(
    problems: Sequence[tuple[str, Problem]],
    scale: Scale,
    found: Callable[[Problem], dict[str, Any]],
    end: float,
    sharing: Sequence[Any] = (),
) -> Iterator[dict[str, Any]]:
    """A row for each problem: its result from `found`, or its error. None is started after `end`.
    sharing: the frameworks that share a card's memory."""
    for name, problem in problems:
        if time.monotonic() > end:
            yield {"name": "problems that are left", "error": "no time was left"}
            return
        row: dict[str, Any] = {"name": name, "sizes": problem.shapes(scale)}
        try:
            row |= found(problem)
        except Exception as error:  # keep the other rows
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        yield row
        gc.collect()
        for framework in sharing:
            framework.cuda.empty_cache()


def summaries(found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each level the geometric mean of the ratios, and the number of problems where ours is
    faster."""
    for level, goal in GOALS.items():
        mine = [r for r in found if r["name"].startswith(f"{level}.")]
        ratios = [r["ratio"] for r in mine if "ratio" in r]
        if ratios:
            yield {
                "name": f"level {level}, geometric mean",
                "ratio": math.exp(statistics.fmean(map(math.log, ratios))),
                "goal": goal,
                "faster": f"{sum(r > 1 for r in ratios)} of {len(ratios)}",
                "median": statistics.median(ratios),
                "failed": sum("error" in r for r in mine),
            }


def imported_torch() -> Any | None:
    try:
        return importlib.import_module("torch")
    except ImportError:
        print("PyTorch isn't installed: nothing is compared", file=sys.stderr)
        return None


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--level", type=int, nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="2.34, or softmax")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--minutes", type=float, default=60, help="after which none is begun")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    parser.add_argument("--resume", action="store_true", help="keep the rows that FILE has")
    parser.add_argument("--offline", action="store_true", help="compile for a GPU, run nothing")
    parser.add_argument("--target", default="sm_90", help="which GPU (with --offline)")
    options = parser.parse_args()
    import tilewright as tw

    importlib.import_module("tilewright.nn")
    problems = chosen(options.level, options.only)
    end = time.monotonic() + 60 * options.minutes
    found = timing.saved(options) if options.resume else []
    done = {row["name"] for row in found if "error" not in row}
    problems = [each for each in problems if each[0] not in done]
    if options.offline:
        import predicted

        columns: Sequence[str] = predicted.COLUMNS
        made = each_row(problems, FULL, lambda p: predicted.predict(p, options.target, tw), end)
    else:
        torch = imported_torch()
        threads = options.threads or tw.get_num_threads()
        for framework in (tw, torch):
            if framework is not None:
                framework.set_num_threads(threads)
        columns = COLUMNS
        scale = SMALL if options.small else FULL if options.device != "cpu" else REDUCED
        made = rows(problems, scale, options.device, tw, torch, end)
    try:
        for row in made:
            found.append(row)
            timing.save(found, options)
            figures = "  ".join(f"{k} {timing.text(v)}" for k, v in row.items() if k != "name")
            print(f"{row['name']}: {figures}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
    found += summaries(found)
    timing.report(found, (*columns, "error"), options)
    for row in found:
        if "goal" in row:
            print("  ".join(f"{k} {timing.text(v)}" for k, v in row.items()))


if __name__ == "__main__":
    main()

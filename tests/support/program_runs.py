"""Runs programs of tests/programs/, reads their values, and compares them with PyTorch's."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import numpy as np
from fuzz_backends import as_cpu, device
from programs import Draw, Program

from tilewright import recording
from tilewright.ir import node as graph
from tilewright.recording import clock
from tilewright.runtime import tiers

TOLERANCES = {"float64": (1e-7, 1e-9), "float32": (5e-4, 5e-5)}
"""(rtol, atol) after several training steps, in which rounding errors add up. Other floats, such as
halves, have (0.03, 0.03). Integers and booleans must be equal."""


class Hangs(Exception):
    """A program ran far beyond its time limit."""


# ---- running -------------------------------------------------------------------------------------


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Run the CPU inside the block: `auto`, as users have it; `fused`, each graph compiled at once;
    `numpy`, by NumPy programs; `eager`, each op at its call."""
    recording.flush()
    before = clock.limit, clock.usual_limit
    with ExitStack() as stack:
        if name == "numpy":
            stack.enter_context(as_cpu(device("numpy")))
        if name in ("fused", "numpy"):
            stack.enter_context(tiers.fused())
        if name == "eager":
            clock.limit = clock.usual_limit = 0
        try:
            yield
        finally:
            clock.limit, clock.usual_limit = before


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise Hangs in a block that takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(
    torch: Any,
    program: Program,
    steps: int,
    *,
    late: bool = False,
    dtype: str = "float32",
    around: Callable[[int, Callable[[], Any]], Any] | None = None,
    seed: int = 0,
) -> list[Any]:
    """The values that a program yields in its first steps, as `look` returns them.

    late: read everything at the end, as a script that reads no values before. around(step, take):
        makes a step by calling take(), for callers that count its work.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    kept, found = [], []
    try:
        take = program.steps(torch, Draw(torch, seed)).__next__
        for step in range(steps):
            try:
                made = take() if around is None else around(step, take)
            except StopIteration:
                break
            kept.append(made if late else None)
            if not late:
                found.append(look(torch, made))
        if late:
            known: dict[int, Any] = {}
            found = [look(torch, made, known) for made in kept]
    except Hangs:
        raise
    except Exception as error:
        found.append(("fails", _classes(error), "".join(traceback.format_exception(error)[-6:])))
    finally:
        torch.set_default_dtype(before)
    return found


# ---- looking -------------------------------------------------------------------------------------


def look(torch: Any, value: Any, known: dict[int, Any] | None = None) -> Any:
    """A value as plain data: ("tensor", flags, array, gradient), lists, dicts, numbers, strings.

    known: earlier results by the id() of their values, which the caller keeps alive.
    """
    if known is not None and id(value) in known:
        return known[id(value)]
    if isinstance(value, torch.Tensor):
        made: Any = _tensor(torch, value, known)
    elif isinstance(value, torch.nn.Module):
        parts = {
            "parameters": dict(value.named_parameters()),
            "buffers": dict(value.named_buffers()),
            "training": [m.training for m in value.modules()],
        }
        made = look(torch, parts, known)
    elif isinstance(value, torch.optim.Optimizer):
        made = look(torch, value.state_dict())
    elif isinstance(value, Mapping):
        made = {str(k): look(torch, v, known) for k, v in value.items()}
    elif isinstance(value, (list, tuple)):
        return [look(torch, v, known) for v in value]
    elif isinstance(value, BaseException):
        made = ("raised", _classes(value))
    elif isinstance(value, (np.ndarray, np.generic)):
        made = ("array", np.array(value))
    elif isinstance(value, (torch.dtype, torch.device, torch.Size)):
        made = str(value)
    else:
        assert value is None or isinstance(value, (bool, int, float, str)), type(value)
        return value
    if known is not None and isinstance(value, (torch.Tensor, torch.nn.Module)):
        known[id(value)] = made
    return made


def _tensor(torch: Any, t: Any, known: Any) -> Any:
    flags = {
        "dtype": str(t.dtype).split(".")[-1],
        "shape": tuple(t.shape),
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
        "a parameter": isinstance(t, torch.nn.Parameter),
    }
    grad = look(torch, t.grad, known) if t.is_leaf or t.retains_grad else None
    value = t.detach()
    if value.dtype not in (torch.float32, torch.float64) and value.is_floating_point():
        value = value.float()
    return ("tensor", flags, np.array(value.numpy()), grad)


def _classes(error: BaseException) -> list[str]:
    """The names of an error's class and its bases. For PyTorch's errors the first one counts."""
    return [c.__name__ for c in type(error).__mro__]


# ---- comparing -----------------------------------------------------------------------------------


def difference(ours: Any, theirs: Any, loose: float = 1.0, path: str = "") -> str | None:
    """A description of the first difference between our values and PyTorch's, or None."""
    kinds = [x[0] if isinstance(x, tuple) else type(x).__name__ for x in (ours, theirs)]
    if "fails" in kinds and kinds[0] != kinds[1]:
        who, error = ("tilewright", ours) if kinds[0] == "fails" else ("PyTorch", theirs)
        return f"{path}: {who} fails:\n{error[2]}"
    if kinds[0] != kinds[1]:
        return f"{path}: {_short(ours)}, not {_short(theirs)}"
    if kinds[0] in ("raised", "fails"):
        return None if theirs[1][0] in ours[1] else f"{path}: {ours[1][0]}, not {theirs[1][0]}"
    if kinds[0] == "tensor":
        if ours[1] != theirs[1]:
            wrong = {k: (v, theirs[1][k]) for k, v in ours[1].items() if v != theirs[1][k]}
            return f"{path}: (ours, theirs): {wrong}"
        value = _apart(ours[2], theirs[2], ours[1]["dtype"], loose, path)
        return value or difference(ours[3], theirs[3], loose, f"{path}.grad")
    if kinds[0] == "array":
        return _apart(ours[1], theirs[1], str(theirs[1].dtype), loose, path)
    if isinstance(ours, float):
        return _apart(np.array(ours), np.array(theirs), "float32", loose, path)
    if isinstance(ours, dict):
        if list(ours) != list(theirs):
            return f"{path}: keys {list(ours)}, not {list(theirs)}"
        pairs = [(f"{path}.{k}", ours[k], theirs[k]) for k in ours]
    elif isinstance(ours, list):
        if len(ours) != len(theirs):
            tail = next((x for x in (*ours[-1:], *theirs[-1:]) if _fails(x)), ["", "", ""])
            return f"{path}: {len(ours)} entries, not {len(theirs)}\n{tail[2]}"
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(ours, theirs))]
    else:
        return None if ours == theirs else f"{path}: {ours!r}, not {theirs!r}"
    for where, a, b in pairs:
        found = difference(a, b, loose, where)
        if found is not None:
            return found
    return None


def _fails(x: Any) -> bool:
    return isinstance(x, tuple) and x[0] == "fails"


def _short(x: Any) -> str:
    return str(x[1:]) if isinstance(x, tuple) else repr(x)


def _apart(a: np.ndarray, b: np.ndarray, dtype: str, loose: float, path: str) -> str | None:
    if a.shape != b.shape:
        return f"{path}: shape {a.shape}, not {b.shape}"
    if a.dtype.kind in "biu":
        same = a == b
    else:
        rtol, atol = TOLERANCES.get(dtype, (0.03, 0.03))
        # Entries that cancel have the errors of their large operands.
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        same = np.isclose(a, b, rtol * loose, (atol + 0.1 * rtol * scale) * loose, equal_nan=True)
    if same.all():
        return None
    at = np.unravel_index(int(np.argmin(same)), same.shape)
    return f"{path}: {np.sum(~same)} of {same.size} differ, as at {at}: {a[at]}, not {b[at]}"


# ---- counting ------------------------------------------------------------------------------------


class Work:
    """Counts the work in windows of steps: calls of Python functions, and new nodes and plans.

    Unlike times, the counts are the same on every machine.
    """

    def __init__(self, *windows: range):
        self.windows = windows
        self.calls = [0] * len(windows)
        self.new = [0] * len(windows)

    def around(self, step: int, take: Callable[[], Any]) -> Any:
        within = [i for i, window in enumerate(self.windows) if step in window]
        if not within:
            return take()

        def count(frame: FrameType, event: str, arg: Any) -> None:
            if event == "call":
                self.calls[within[0]] += 1

        before = _sizes()
        watching = sys.getprofile()
        sys.setprofile(count)
        try:
            return take()
        finally:
            sys.setprofile(watching)
            made = [now - then for then, now in zip(before, _sizes())]
            self.new[within[0]] += sum(max(0, more) for more in made)


def _sizes() -> tuple[int, ...]:
    """The numbers of nodes, plans and programs."""
    return graph.table_size(), len(tiers.plans()), len(tiers.baselines())

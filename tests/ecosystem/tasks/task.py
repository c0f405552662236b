"""A task is a small program of a package's user that yields numbers: (name, value), ….

Tasks import torch and know nothing of who answers. `python task.py FILE` runs a file's tasks, twice
each, and prints what they yielded and how long they took as JSON, a line a task. Weights and inputs
are drawn by NumPy, for torch's own draws are no part of the comparison.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Program = Callable[[], Iterator[tuple[str, Any]]]
TASKS: dict[str, tuple[Program, float]] = {}
SHOWN = 24  # elements of a large tensor that are kept


def task(what: str, tolerance: float = 1e-3) -> Callable[[Program], Program]:
    """Register a program; its numbers may differ from PyTorch's by `tolerance`, relative to the
    largest element of a tensor."""

    def register(program: Program) -> Program:
        assert what not in TASKS, what
        TASKS[what] = (program, tolerance)
        return program

    return register


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """A float32 tensor of normal draws."""
    import torch

    drawn = np.random.RandomState(seed).standard_normal(shape) * scale
    return torch.from_numpy(drawn.astype(np.float32))


def choose(high: int, *shape: int, seed: int = 0, low: int = 0) -> Any:
    """An int64 tensor of draws from low to high - 1."""
    import torch

    return torch.from_numpy(np.random.RandomState(seed).randint(low, high, shape).astype(np.int64))


def settle(module: Any, seed: int = 0) -> Any:
    """Draw a module's parameters anew: weights by their fan-in, vectors around one or zero."""
    import torch

    random = np.random.RandomState(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            drawn = random.standard_normal(tuple(parameter.shape))
            if parameter.dim() > 1:
                drawn /= max(1.0, parameter[0].numel()) ** 0.5
            else:
                drawn = drawn * 0.1 + name.endswith("weight")
            parameter.copy_(torch.from_numpy(np.asarray(drawn, np.float32)))
    return module


def gradients(module: Any) -> Any:
    """The norm of each parameter's gradient, as one tensor."""
    import torch

    found = [p.grad.float().norm() for p in module.parameters() if p.grad is not None]
    return torch.stack([x.detach() for x in found])


def digest(value: Any) -> Any:
    """What JSON can hold: a large tensor is its shape, its moments and some of its elements."""
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [digest(each) for each in value]
    if isinstance(value, dict):
        return {str(key): digest(each) for key, each in value.items()}
    if hasattr(value, "detach"):
        value = value.detach()
        if value.is_floating_point():
            value = value.double()
        value = value.cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        flat, wide = array.reshape(-1).tolist(), array.astype(np.int64)
        total: Any = int(wide.sum())
    else:
        wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).reshape(-1)
        if wide.dtype.kind == "c":
            wide = wide.view(np.float64)
        flat, total = wide.tolist(), float(np.abs(wide).mean()) if wide.size else 0.0
    if len(flat) > SHOWN:
        places = np.linspace(0, len(flat) - 1, SHOWN).astype(int).tolist()
        flat = [flat[i] for i in places]
    return {"shape": list(array.shape), "total": total, "elements": flat}


def run(what: str) -> dict[str, Any]:
    """Run a task twice, cold and warm. Both runs must yield the same, up to the tolerance."""
    program, tolerance = TASKS[what]
    result: dict[str, Any] = {"task": what, "tolerance": tolerance, "runs": [], "seconds": []}
    try:
        for _ in range(2):
            begun = time.perf_counter()
            result["runs"].append({name: digest(value) for name, value in program()})
            result["seconds"].append(time.perf_counter() - begun)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        result["error"] = f"{type(error).__name__}: {error}"[:600]
        result["traceback"] = traceback.format_exc()[-6000:]
    return result


def main(file: str, *only: str) -> None:
    warnings.simplefilter("ignore")
    importlib.import_module(file)
    shared = importlib.import_module("task")
    for what in only or list(shared.TASKS):
        print(json.dumps(shared.run(what)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Ordinary programs for a GPU, as people write them.

A program is a function `program(torch, device)` that makes a model and its data and returns a step.
Each call of the step does the program's work once and returns values (tensors, numbers, and lists,
tuples and dicts of them), which must be the same whoever `torch` is. Weights and data are drawn by
NumPy, as torch's own draws are no part of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Step = Callable[[], Any]
Make = Callable[[Any, str], Step]


@dataclass(frozen=True)
class Program:
    """name: of its row. tolerance: the largest difference from PyTorch's values, relative to the
    largest element of a tensor. card: it needs a GPU. steps: how many are compared."""

    name: str
    make: Make
    tolerance: float
    card: bool
    steps: int


PROGRAMS: dict[str, Program] = {}


def program(
    name: str, tolerance: float = 1e-3, *, card: bool = False, steps: int = 4
) -> Callable[[Make], Make]:
    """Register a program."""

    def register(make: Make) -> Make:
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, make, tolerance, card, steps)
        return make

    return register


def draw(torch: Any, *shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """A float32 tensor of normal draws, on the CPU."""
    drawn = np.random.RandomState(seed).standard_normal(shape) * scale
    return torch.from_numpy(drawn.astype(np.float32))


def choose(torch: Any, high: int, *shape: int, seed: int = 0, low: int = 0) -> Any:
    """An int64 tensor of draws from low to high - 1, on the CPU."""
    drawn = np.random.RandomState(seed).randint(low, high, shape)
    return torch.from_numpy(drawn.astype(np.int64))


def settle(torch: Any, module: Any, seed: int = 0) -> Any:
    """Draw a module's parameters anew: weights by their fan-in, vectors around one or zero."""
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

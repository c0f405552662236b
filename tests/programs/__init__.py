"""Training scripts as people write them, for the runner in test_programs.py.

A program is a generator function of `torch` and `draw`. At each step it yields values that must be
the same under PyTorch and under tilewright: tensors, modules, optimizers, numbers, strings,
exceptions, and lists, tuples and dicts of them.

    @program
    def regression(torch, draw):
        x, y = draw(8, 3), draw(8, 1)
        model = draw.into(torch.nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            yield loss, model

Random numbers come from `draw`, because the frameworks' own generators differ.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Draw:
    """Draws random tensors that are the same for both frameworks. Floats have the default dtype."""

    def __init__(self, torch: Any, seed: int):
        self.torch = torch
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, requires_grad: bool = False) -> Any:
        """Normally distributed numbers."""
        return self.tensor(self.rng.standard_normal(shape), requires_grad)

    def uniform(self, *shape: int) -> Any:
        """Numbers in [0, 1)."""
        return self.tensor(self.rng.random(shape))

    def tensor(self, values: Any, requires_grad: bool = False) -> Any:
        return self.torch.tensor(
            values, dtype=self.torch.get_default_dtype(), requires_grad=requires_grad
        )

    def classes(self, count: int, *shape: int) -> Any:
        """Integers below `count`."""
        return self.torch.tensor(self.rng.integers(0, count, shape))

    def below(self, count: int) -> int:
        """One integer below `count`."""
        return int(self.rng.integers(0, count))

    def chance(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def order(self, count: int) -> list[int]:
        """A permutation."""
        return [int(i) for i in self.rng.permutation(count)]

    def into(self, model: Any, scale: float = 0.5) -> Any:
        """The model, with drawn parameters."""
        with self.torch.no_grad():
            for p in model.parameters():
                p.copy_(self(*p.shape) * scale)
        return model

    def mlp(self, *sizes: int, act: str = "Tanh") -> Any:
        """Linear layers of these sizes with an activation between them, and drawn parameters."""
        nn = self.torch.nn
        layers: list[Any] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), getattr(nn, act)()]
        return self.into(nn.Sequential(*layers[:-1]))


Steps = Iterator[Any]


@dataclass(frozen=True)
class Program:
    """A script.

    steps: the generator function. varies: the reason why late steps may still record and compile
    new graphs. broken: the reason of a known failure. loose: a factor for its tolerances.
    """

    name: str
    steps: Callable[[Any, Draw], Steps]
    varies: str = ""
    broken: str = ""
    loose: float = 1.0


PROGRAMS: dict[str, Program] = {}


def program(function: Any = None, **notes: Any) -> Any:
    """Register a program. `notes` are fields of Program."""
    if function is None:
        return lambda f: program(f, **notes)
    name = function.__name__
    assert name not in PROGRAMS, f"two programs are called {name}"
    PROGRAMS[name] = Program(name, function, **notes)
    return function


def update(optimizer: Any, loss: Any) -> None:
    """An optimizer's step in the usual three lines."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def raised(call: Callable[..., Any], *args: Any, **options: Any) -> Exception | None:
    """The exception that a call raises, without frames, which would keep tensors alive."""
    try:
        call(*args, **options)
    except Exception as error:
        return error.with_traceback(None)
    return None


def all_programs() -> Sequence[Program]:
    """The programs of every file of this folder."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return list(PROGRAMS.values())

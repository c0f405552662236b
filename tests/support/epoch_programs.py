"""Random programs over several epochs beside PyTorch: views, writes through them, reads of values,
hooks and several backward passes, in any order.

    python tests/support/epoch_programs.py --count 2000 [--seed N] [--steps 14] [--at-once]

An epoch is the time between two flushes (docs/design/recording.md). A gradient must not depend on
when values are read, nor on which epoch made a view, a hook or a history. Each step draws from a
generator of its own, so a program that differs is cut down to the steps that it needs.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from view_programs import Differs, Program


class EpochProgram(Program):
    """skipped: the numbers of steps that the program leaves out."""

    def __init__(
        self, seed: int, ours: Any, theirs: Any, steps: int = 14, skipped: Collection[int] = ()
    ):
        super().__init__(seed, ours, theirs, steps)
        self.skipped = skipped
        self.hooks: list[tuple[int, tuple[list[Any], list[Any]]]] = []

    def _run(self) -> None:
        self.new()
        actions = [
            (self.new, 2), (self.chain, 5), (self.write, 3), (self.combine, 6), (self.compute, 3),
            (self.item, 3), (self.read, 1), (self.backward, 2), (self.grad, 3), (self.hook, 1),
            (self.zero, 1), (self.step, 1), (self.demand, 1),
        ]  # fmt: skip
        weighted = [action for action, weight in actions for _ in range(weight)]
        for number in range(self.steps):
            self.draw_from(number)
            if number not in self.skipped:
                self.choose.choice(weighted)()
        self.draw_from(self.steps)
        for number in range(len(self.tensors)):
            self.compare(number)
        self.backward()
        self.grad()
        self.compare_hooks()

    def draw_from(self, number: int) -> None:
        """Draw what the step of this number needs, whatever the steps before it have drawn."""
        self.choose.seed(self.seed * 1000 + number)
        self.data = np.random.default_rng(self.seed * 1000 + number)

    def new(self) -> None:
        super().new()
        while 0 in self.tensors[-1][1].shape:
            self.tensors.pop()
            super().new()

    def combine(self) -> None:
        """A call on two tensors, or on one and the sum of the other."""
        i, j = self.pick(), self.pick()
        is_whole = self.tensors[i][1].shape != self.tensors[j][1].shape
        name = self.choose.choice(("mul", "add", "product", "sub"))

        def call(side: int, m: Any) -> Any:
            x, y = self.tensors[i][side] * 0.25, self.tensors[j][side]
            if is_whole:
                y = y.sum()
            return (x * y).sum() if name == "product" else getattr(x, name)(y)

        pair = self.both(f"t{len(self.tensors)}: {name} of t{i}, t{j}", call)
        if pair is not None:
            layout = self.sides[1].contiguous_format
            self.add((pair[0], pair[1].clone(memory_format=layout)))

    def item(self) -> None:
        """A read of a number, which ends the epoch."""
        number = self.pick()
        text = f"sum of t{number}"
        pair = self.both(text, lambda side, m: self.tensors[number][side].sum().item())
        if pair is not None and not np.isclose(*pair, rtol=1e-9, equal_nan=True):
            self.fail(f"{text}: ours {pair[0]}, theirs {pair[1]}")

    def zero(self) -> None:
        self.log.append("no gradients")
        for pair in self.leaves:
            for t in pair:
                t.grad = None

    def step(self) -> None:
        """A step of an optimizer, which ends the epoch."""
        if any(t.grad is not None for _, t in self.leaves):
            momentum = self.choose.choice((0.0, 0.5))

            def step(side: int, m: Any) -> None:
                leaves = [pair[side] for pair in self.leaves]
                m.optim.SGD(leaves, lr=0.5, momentum=momentum).step()

            self.both("step", step)

    def demand(self) -> None:
        """A tensor that begins to require a gradient, perhaps a detached one. Not one with views:
        in PyTorch these then say that they require one, and pass none on. Not a view: its own views
        pass none on after a write."""
        number = self.pick()
        t = self.tensors[number][1]
        views = [x for _, x in self.tensors if x._is_view()]
        if t.requires_grad or any(x is t or x._base is t for x in views):
            return

        def demand(side: int, m: Any) -> None:
            self.tensors[number][side].requires_grad_()

        if self.both(f"t{number}.requires_grad_", demand) is not None:
            self.leaves.append(self.tensors[number])

    def hook(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        try:
            t.grad_fn  # noqa: B018
        except RuntimeError:  # one of several views, whose base was written to
            return
        if not t.requires_grad:
            return
        seen: tuple[list[Any], list[Any]] = ([], [])

        def register(side: int, m: Any) -> Any:
            return self.tensors[number][side].register_hook(lambda g: seen[side].append(g.tolist()))

        if self.both(f"hook on t{number}", register) is not None:
            self.hooks.append((number, seen))

    def compare_hooks(self) -> None:
        for number, (ours, theirs) in () if self.is_silent else self.hooks:
            same = len(ours) == len(theirs) and all(map(_is_close, ours, theirs))
            if not same:
                self.fail(f"hook on t{number}: ours {ours}, theirs {theirs}")

    def grad(self) -> None:
        """A pass that asks for the gradients of some tensors."""
        tracked = [i for i, (_, t) in enumerate(self.tensors) if t.requires_grad]
        if not tracked:
            return
        root = self.choose.choice(tracked[-5:])
        wanted = self.choose.sample(tracked, min(len(tracked), self.choose.choice((1, 1, 2, 3))))
        is_square = self.choose.random() < 0.4

        def call(side: int, m: Any) -> Any:
            y = self.tensors[root][side]
            return m.autograd.grad(
                (y * y if is_square else y).sum(),
                [self.tensors[i][side] for i in wanted],
                retain_graph=True,
                allow_unused=True,
            )

        text = f"grad of t{root} ({'square' if is_square else 'sum'}) by {wanted}"
        pair = self.both(text, call)
        if pair is None or self.is_silent:
            return
        for i, ours, theirs in zip(wanted, *pair):
            if (ours is None) != (theirs is None) or (
                theirs is not None and not _is_close(ours.tolist(), theirs.tolist())
            ):
                self.fail(f"grad by t{i}: ours {ours}, theirs {theirs}")


def _is_close(ours: Any, theirs: Any) -> bool:
    return np.allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-9)


@contextmanager
def calls_at_once(at_once: bool) -> Iterator[None]:
    """Have calls computed when they are made, or recorded: never by what ran before."""
    from tilewright.recording import novelty
    from tilewright.recording.epoch import clock

    before = novelty.DUE, novelty.OFTEN, novelty.REPEATS, novelty.UNTAPED
    novelty.clear()
    novelty.DUE = novelty.OFTEN = novelty.REPEATS = novelty.UNTAPED = 1 << 60
    if at_once:
        novelty.DUE = before[0]
        clock.news, clock.volatile = 2 * novelty.DUE, True
    try:
        yield
    finally:
        novelty.DUE, novelty.OFTEN, novelty.REPEATS, novelty.UNTAPED = before
        novelty.clear()


def difference(
    seed: int,
    ours: Any,
    theirs: Any,
    steps: int = 14,
    skipped: Collection[int] = (),
    at_once: bool = False,
) -> str | None:
    """The log of a program up to the difference of both sides; None if there is none."""
    program = EpochProgram(seed, ours, theirs, steps, skipped)
    try:
        with calls_at_once(at_once):
            program.run()
    except Differs as error:
        return str(error)
    except Exception as error:
        return f"program {seed}: {error!r}\n  " + "\n  ".join(program.log)
    return None


def _kind(text: str) -> str:
    """What kind of difference a text tells of, without its numbers."""
    first = text.partition("\n")[0].partition(": ")[2]
    if "told from" in first:
        return "twins"
    error = "error" if "Error(" in first else ""
    return re.sub(r"\d+", "", first.partition(" ours ")[0])[:24] + error


def shrunk(seed: int, ours: Any, theirs: Any, steps: int, at_once: bool) -> str | None:
    """`difference`, of as few steps as show one of the same kind."""
    text = difference(seed, ours, theirs, steps, (), at_once)
    if text is None:
        return None
    skipped: list[int] = []
    for number in reversed(range(steps)):
        found = difference(seed, ours, theirs, steps, [*skipped, number], at_once)
        if found is not None and _kind(found) == _kind(text):
            text = found
            skipped.append(number)
    return f"{text}\n  steps left out: {skipped}"


def main() -> None:
    import torch

    import tilewright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--at-once", action="store_true", help="compute calls when they are made")
    parser.add_argument("--shown", type=int, default=3, help="differences of a kind to show")
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        text = difference(seed, tilewright, torch, options.steps, (), options.at_once)
        if text is None:
            continue
        kinds[_kind(text)] += 1
        if kinds[_kind(text)] <= options.shown:
            print(shrunk(seed, tilewright, torch, options.steps, options.at_once), flush=True)
    print(f"{options.count} programs, {sum(kinds.values())} differ: {dict(kinds)}")


if __name__ == "__main__":
    main()

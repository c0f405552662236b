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
from view_programs import Differs, Program, has_overlap


class EpochProgram(Program):
    """skipped: the numbers of steps that the program leaves out."""

    def __init__(
        self, seed: int, ours: Any, theirs: Any, steps: int = 14, skipped: Collection[int] = ()
    ):
        super().__init__(seed, ours, theirs, steps)
        self.skipped = skipped
        self.hooks: list[tuple[int, tuple[list[Any], list[Any]]]] = []
        self.kept: set[int] = set()

    def _run(self) -> None:
        self.new()
        actions = [
            (self.new, 2), (self.chain, 5), (self.write, 3), (self.combine, 6), (self.compute, 3),
            (self.item, 3), (self.read, 1), (self.backward, 2), (self.grad, 3), (self.hook, 1),
            (self.zero, 1), (self.step, 1), (self.demand, 1), (self.second, 2), (self.join, 2),
            (self.pick_elements, 2), (self.put, 2), (self.keep_grad, 1), (self.untracked, 1),
            (self.give_data, 1), (self.end, 1),
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
        self.compare_kept()

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
        self.add_result(pair)

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

    def second(self) -> None:
        """A tensor made of a gradient, which has a graph itself."""
        tracked = [i for i, (_, t) in enumerate(self.tensors) if t.requires_grad]
        if not tracked or self.is_silent:
            return
        root, by = self.choose.choice(tracked[-5:]), self.choose.choice(tracked)

        def call(side: int, m: Any) -> Any:
            y, x = self.tensors[root][side] * 0.5, self.tensors[by][side]
            (g,) = m.autograd.grad((y * y * y).sum(), [x], create_graph=True, allow_unused=True)
            return m.zeros((), dtype=m.float64) if g is None else g * 0.5

        pair = self.both(f"t{len(self.tensors)}: gradient of t{root} by t{by}", call)
        self.add_result(pair)

    def join(self) -> None:
        """A call on two tensors of one shape, or on one and what another one repeats."""
        i, j = self.pick(), self.pick()
        a, b = self.tensors[i][1], self.tensors[j][1]
        name = self.choose.choice(("cat", "stack", "where", "maximum", "addcmul", "lerp"))
        if a.shape != b.shape or (name == "cat" and not a.dim()):
            return
        calls: dict[str, Any] = {
            "cat": lambda m, x, y: m.cat([x, y * 0.5, x]),
            "stack": lambda m, x, y: m.stack([x, y], -1),
            "where": lambda m, x, y: m.where(x > y, x * 0.5, y),
            "maximum": lambda m, x, y: m.maximum(x, y + 0.25),
            "addcmul": lambda m, x, y: m.addcmul(x, x * 0.25, y, value=2),
            "lerp": lambda m, x, y: m.lerp(x, y, 0.25),
        }
        pair = self.both(
            f"t{len(self.tensors)}: {name} of t{i}, t{j}",
            lambda side, m: calls[name](m, self.tensors[i][side], self.tensors[j][side]),
        )
        self.add_result(pair)

    def pick_elements(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        if not t.dim() or not t.numel():
            return
        axis = self.choose.randrange(t.dim())
        places = [
            self.choose.randrange(t.shape[axis]) for _ in range(self.choose.choice((1, 2, 5)))
        ]
        name = self.choose.choice(("index_select", "key", "gather", "masked", "cumsum", "sort"))
        calls: dict[str, Any] = {
            "index_select": lambda m, x: x.index_select(axis, m.tensor(places)),
            "key": lambda m, x: x.movedim(axis, 0)[places],
            "gather": lambda m, x: x.gather(axis, m.zeros_like(x, dtype=m.int64)),
            "masked": lambda m, x: x[x > 0] * 0.5,
            "cumsum": lambda m, x: x.cumsum(axis) * 0.5,
            "sort": lambda m, x: x.sort(dim=axis, stable=True)[0],
        }
        pair = self.both(
            f"t{len(self.tensors)}: {name} of t{number}",
            lambda side, m: calls[name](m, self.tensors[number][side]),
        )
        self.add_result(pair)

    def put(self) -> None:
        """A write to some elements."""
        number = self.pick()
        t = self.tensors[number][1]
        if not t.dim() or not t.numel() or has_overlap(t):
            return
        axis = self.choose.randrange(t.dim())
        places = sorted({self.choose.randrange(t.shape[axis]) for _ in range(3)})
        value = self.tensor(tuple(len(places) if i == axis else n for i, n in enumerate(t.shape)))
        if self.leaves and self.choose.random() < 0.4:
            leaf = self.choose.choice(self.leaves)
            value = (value[0] * leaf[0].sum(), value[1] * leaf[1].sum())
        name = self.choose.choice(("index_add_", "index_copy_", "masked_fill_", "key", "scatter_"))
        calls: dict[str, Any] = {
            "index_add_": lambda m, x, v: x.index_add_(axis, m.tensor(places), v, alpha=2),
            "index_copy_": lambda m, x, v: x.index_copy_(axis, m.tensor(places), v),
            "masked_fill_": lambda m, x, v: x.masked_fill_(x > 0, v.sum()),
            "key": lambda m, x, v: x.__setitem__((slice(None),) * axis + (places,), v),
            "scatter_": lambda m, x, v: x.scatter_(axis, m.zeros_like(v, dtype=m.int64), 2.5),
        }
        self.both(
            f"t{number}.{name} {axis}",
            lambda side, m: calls[name](m, self.tensors[number][side], value[side]) is None,
        )

    def keep_grad(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        if is_outdated(t):
            return
        if not t.requires_grad or t.is_leaf:
            return
        if self.both(
            f"t{number}.retain_grad", lambda side, m: self.tensors[number][side].retain_grad()
        ):
            self.kept.add(number)

    def compare_kept(self) -> None:
        for number in () if self.is_silent else self.kept:
            ours, theirs = (t.grad for t in self.tensors[number])
            if (ours is None) != (theirs is None) or (
                theirs is not None and not _is_close(ours.tolist(), theirs.tolist())
            ):
                self.fail(f"kept gradient of t{number}: ours {ours}, theirs {theirs}")

    def untracked(self) -> None:
        number = self.pick()

        def call(side: int, m: Any) -> Any:
            with m.no_grad():
                return self.tensors[number][side] * 0.5 + 1

        self.add_result(self.both(f"t{len(self.tensors)}: untracked of t{number}", call))

    def give_data(self) -> None:
        """Other memory for a leaf."""
        if not self.leaves:
            return
        leaf = self.choose.choice(self.leaves)
        value = self.tensor(tuple(leaf[1].shape))

        def give(side: int, m: Any) -> None:
            leaf[side].data = value[side]

        self.both("leaf.data = new", give)
        self.is_silent = True

    def end(self) -> None:
        """`detach_` of a tensor that is no view."""
        number = self.pick()
        t = self.tensors[number][1]
        views = [x for _, x in self.tensors if x._is_view() and x._base is t]
        if t._is_view() or t.is_leaf or views:
            return
        self.both(
            f"t{number}.detach_", lambda side, m: self.tensors[number][side].detach_() is None
        )

    def add_result(self, pair: tuple[Any, Any] | None) -> None:
        if pair is not None:
            layout = self.sides[1].contiguous_format
            self.add((pair[0], pair[1].clone(memory_format=layout)))

    def hook(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        if is_outdated(t):
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


def is_outdated(t: Any) -> bool:
    """Whether PyTorch refuses to tell of the history of `t`: it is one of several views, whose base
    was written to."""
    try:
        t.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


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

"""Random programs of views beside PyTorch: chains of them, writes through them, reads, gradients.

    python tests/support/view_programs.py --count 2000 [--seed N]

Both libraries make each step at once. They must agree on errors, on shapes, strides and offsets of
results, on values whenever they are read, on flags, and on gradients at the end.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Call = Callable[[Any, Any], Any]  # (library, tensor) -> a tensor, or several


class Views:
    """Random calls of each kind of view: a call that a tensor can take, or None."""

    def __init__(self, choose: random.Random):
        self.choose = choose

    def axis(self, t: Any) -> int:
        return self.choose.randrange(-t.dim(), t.dim())

    def alias(self, t: Any) -> Call:
        calls: list[Call] = [
            lambda m, x: x[...],
            lambda m, x: x.view(x.shape),
            lambda m, x: x.view_as(x),
            lambda m, x: x.reshape_as(x),
            lambda m, x: m.movedim(x, 0, 0),
            lambda m, x: x.positive(),
            lambda m, x: x.contiguous(),
            lambda m, x: x.expand_as(x),
        ]
        return self.choose.choice(calls)

    def detach(self, t: Any) -> Call | None:
        return lambda m, x: x.detach()

    def data(self, t: Any) -> Call | None:
        return lambda m, x: x.data

    def diagonal(self, t: Any) -> Call | None:
        if t.dim() < 2:
            return None
        a, b = self.choose.sample(range(t.dim()), 2)
        offset = self.choose.choice((0, 0, 1, -1, 2, -3))
        if self.choose.random() < 0.3:
            a, b = a - t.dim(), b - t.dim()
        if self.choose.random() < 0.3:
            return lambda m, x: m.linalg.diagonal(x, offset=offset, dim1=a, dim2=b)
        return lambda m, x: m.diagonal(x, offset, a, b)

    def expand(self, t: Any) -> Call | None:
        lead = [self.choose.choice((1, 2)) for _ in range(self.choose.choice((0, 0, 1)))]
        target = [*lead, *(self.choose.choice((1, 3, -1)) if s == 1 else -1 for s in t.shape)]
        if not target or t.numel() > 40:
            return None
        whole = [*lead, *(s if n == -1 else n for n, s in zip(target[len(lead) :], t.shape))]
        calls: list[Call] = [
            lambda m, x: x.expand(*target),
            lambda m, x: m.broadcast_to(x, whole),
            lambda m, x: x.expand_as(m.zeros(whole)),
        ]
        return self.choose.choice(calls)

    def permute(self, t: Any) -> Call | None:
        order = list(range(t.dim()))
        self.choose.shuffle(order)
        if not order:
            return None
        a, b = self.axis(t), self.axis(t)
        calls: list[Call] = [
            lambda m, x: x.permute(*order),
            lambda m, x: x.transpose(a, b),
            lambda m, x: x.swapaxes(a, b),
            lambda m, x: x.movedim(a, b),
            lambda m, x: m.moveaxis(x, list(range(len(order))), order),
        ]
        if t.dim() == 2:
            calls += [lambda m, x: x.t(), lambda m, x: x.T, lambda m, x: x.H]
        if t.dim() >= 2:
            calls += [lambda m, x: x.mT, lambda m, x: x.mH, lambda m, x: x.adjoint()]
        return self.choose.choice(calls)

    def key(self, t: Any) -> tuple[Any, ...]:
        """A basic index."""
        parts: list[Any] = []
        for n in t.shape:
            kind = self.choose.random()
            if kind < 0.25 and n:
                parts.append(self.choose.randrange(-n, n))
            elif kind < 0.7:
                a = self.choose.randint(0, n)
                parts.append(slice(a, self.choose.randint(a, n), self.choose.choice((1, 1, 2, 3))))
            else:
                parts.append(slice(None))
        if self.choose.random() < 0.2:
            parts.insert(self.choose.randint(0, len(parts)), None)
        cut = self.choose.randint(0, len(parts))
        return tuple(parts[:cut]) if self.choose.random() < 0.5 else (*parts[:cut], ...)

    def index(self, t: Any) -> Call | None:
        key = self.key(t)
        return lambda m, x: x[key]

    def narrow(self, t: Any) -> Call | None:
        if not t.dim():
            return None
        axis = self.axis(t)
        n = t.shape[axis]
        start = self.choose.randint(0, n)
        length = self.choose.randint(0, n - start)
        if self.choose.random() < 0.4 and n:
            at = self.choose.randrange(-n, n)
            return lambda m, x: x.select(axis, at)
        return lambda m, x: x.narrow(axis, start, length)

    def reshape(self, t: Any) -> Call | None:
        n, shape = t.numel(), tuple(t.shape)
        targets: list[Shape] = [(-1,), (*shape, 1), (1, *shape)]
        for k in (2, 3, 4):
            if n % k == 0 and n:
                targets += [(k, -1), (-1, k)]
        target = self.choose.choice(targets)
        if n == 0:
            target = shape
        axis = self.axis(t) if t.dim() else 0
        calls: list[Call] = [
            lambda m, x: x.reshape(target),
            lambda m, x: x.view(target),
            lambda m, x: x.flatten(),
            lambda m, x: x.ravel(),
            lambda m, x: x.unsqueeze(axis),
            lambda m, x: x.squeeze(),
        ]
        if t.dim():
            size = t.shape[axis]
            parts = (2, size // 2) if size % 2 == 0 and size else (1, size)
            calls += [
                lambda m, x: x.squeeze(axis),
                lambda m, x: x.unflatten(axis, parts),
                lambda m, x: x.flatten(0, -1),
            ]
        return self.choose.choice(calls)

    def several(self, t: Any) -> Call | None:
        if not t.dim():
            return None
        axis = self.axis(t)
        n = t.shape[axis]
        sizes = [n // 2, n - n // 2]
        calls: list[Call] = [
            lambda m, x: x.unbind(axis),
            lambda m, x: x.chunk(2, axis),
            lambda m, x: x.split(2, axis),
            lambda m, x: x.split(sizes, axis),
            lambda m, x: m.split_with_sizes(x, sizes, axis),
            lambda m, x: x.tensor_split(3, axis),
            lambda m, x: x.tensor_split([1, 2], axis),
            lambda m, x: list(x),
        ]
        if t.dim() > 1 and t.shape[0] % 2 == 0:
            calls.append(lambda m, x: x.vsplit(2))
        if t.shape[0 if t.dim() == 1 else 1] % 2 == 0:
            calls.append(lambda m, x: x.hsplit(2))
        return self.choose.choice(calls)

    def unfold(self, t: Any) -> Call | None:
        if not t.dim() or t.numel() > 60:
            return None
        axis = self.axis(t)
        n = t.shape[axis]
        if not n:
            return None
        size, step = self.choose.randint(1, min(n, 3)), self.choose.randint(1, 3)
        return lambda m, x: x.unfold(axis, size, step)

    def strided(self, t: Any) -> Call | None:
        """A view of the memory that the tensor spans. PyTorch differentiates only through such
        views."""
        if not t.numel() or has_overlap(t):
            return None
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
        if span != t.numel():  # the memory has gaps that the tensor doesn't show
            return None
        shape, strides, left = [], [], span - 1
        start = self.choose.randint(0, min(2, left))
        left -= start
        for _ in range(self.choose.choice((0, 1, 2))):
            step = self.choose.randint(1, 4)
            size = self.choose.randint(1, 1 + left // step)
            left -= (size - 1) * step
            shape.append(size)
            strides.append(step)
        offset = t.storage_offset() + start
        return lambda m, x: x.as_strided(shape, strides, offset)


KINDS = [name for name in vars(Views) if name not in ("axis", "key") and name[0] != "_"]


def has_overlap(t: Any) -> bool:
    places = np.zeros((), np.int64)
    for n, s in zip(t.shape, t.stride()):
        places = places[..., None] + np.arange(n) * s
    return len(np.unique(places)) < places.size


def _has_no_strides(t: Any) -> bool:
    """Whether strides can't express the history of `t`: it views a detached part, or is one of
    several views of a call."""
    chain = t._chain
    if chain is None or chain.multiple is not None:
        return chain is not None
    return chain.detaches and not chain.links[0][0].detaches


class Ended(Exception):
    """There is nothing more to compare."""


class Differs(AssertionError):
    """The log of a program's run up to the difference of the two sides."""


class Program:
    def __init__(self, seed: int, ours: Any, theirs: Any, steps: int = 14):
        self.choose = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.views = Views(self.choose)
        self.sides = (ours, theirs)
        self.tensors: list[tuple[Any, Any]] = []
        self.leaves: list[tuple[Any, Any]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self.log: list[str] = []
        self.seed, self.steps = seed, steps
        self.raised = 0
        self.is_silent = False  # after a write to `.data`, which may change PyTorch's saved values

    def run(self) -> None:
        with suppress(Ended):
            self._run()

    def _run(self) -> None:
        self.new()
        actions = [
            (self.new, 1), (self.chain, 6), (self.write, 7), (self.read, 2), (self.compute, 2),
            (self.numpy, 1), (self.backward, 1),
        ]  # fmt: skip
        weighted = [action for action, weight in actions for _ in range(weight)]
        for _ in range(self.steps):
            self.choose.choice(weighted)()
        for number in range(len(self.tensors)):
            self.compare(number)
        self.backward()

    # ---- both sides at once ------------------------------------------------------------------

    def fail(self, why: str) -> None:
        raise Differs(f"program {self.seed}: {why}\n  " + "\n  ".join(self.log))

    def both(self, text: str, call: Callable[[int, Any], Any]) -> tuple[Any, Any] | None:
        """The results of call(side, library) on both sides; None if both refuse it."""
        self.log.append(text)
        results: list[Any] = []
        errors: list[Exception | None] = []
        for side, library in enumerate(self.sides):
            try:
                results.append(call(side, library))
                errors.append(None)
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                results.append(None)
                errors.append(error)
        if errors[0] is not errors[1] and self.is_beside(text, str(errors[1] or ""), errors[0]):
            raise Ended
        if (errors[0] is None) != (errors[1] is None):
            self.fail(f"{text}: ours {errors[0]!r}, theirs {errors[1]!r}")
        if errors[0] is not None:
            if type(errors[0]) is not type(errors[1]) and not isinstance(
                errors[0], type(errors[1])
            ):
                self.fail(f"{text}: ours {errors[0]!r}, theirs {errors[1]!r}")
            self.log[-1] += " (refused)"
            self.raised += 1
            return None
        return results[0], results[1]

    def is_beside(self, text: str, theirs: str, ours: Exception | None) -> bool:
        """Whether an error of one side alone is allowed. PyTorch refuses some writes, views and
        gradients that tilewright can compute."""
        if self.is_silent and "modified by an inplace" in str(ours):
            return True
        if self.is_silent and ours is None and "is a view and its base or another" in theirs:
            return True  # there the views of a leaf that got other memory are out of date
        return "modified by an inplace operation" in theirs or (
            ours is None
            and (
                "AsStrided is a view" in theirs
                or "detached in-place" in theirs  # a saved value that had a gradient
                or theirs.startswith("a leaf Variable")  # a view whose sibling gave it a history
                or ("more than one element" in theirs and text.startswith("backward"))
            )
        )

    def add(self, pair: tuple[Any, Any]) -> None:
        ours, theirs = pair
        self.tensors.append(pair)
        for name in ("shape", "requires_grad", "is_leaf"):
            try:
                expected = getattr(theirs, name)
            except RuntimeError:  # one of several views, whose base was written to
                continue
            if getattr(ours, name) != expected:
                self.fail(f"{name}: ours {getattr(ours, name)}, theirs {expected}")
        a = (tuple(ours.stride()), ours.storage_offset(), ours.is_contiguous())
        b = (tuple(theirs.stride()), theirs.storage_offset(), theirs.is_contiguous())
        if a != b:
            self.fail(f"layout: ours {a}, theirs {b}")

    def values(self, shape: Shape) -> np.ndarray:
        return np.asarray(self.data.integers(-4, 5, shape), np.float64)

    def tensor(self, shape: Shape) -> tuple[Any, Any]:
        if 0 in shape:  # PyTorch gives empty arrays other strides
            a, b = (m.zeros(shape, dtype=m.float64) for m in self.sides)
            return a, b
        values = self.values(shape)
        return self.sides[0].tensor(values), self.sides[1].tensor(values)

    def pick(self) -> int:
        recent = max(0, len(self.tensors) - 6)
        low = recent if self.choose.random() < 0.6 else 0
        return self.choose.randrange(low, len(self.tensors))

    # ---- steps -------------------------------------------------------------------------------

    def new(self) -> None:
        shape = tuple(
            self.choose.choice((1, 2, 3, 4, 4, 6))
            for _ in range(self.choose.choice((0, 1, 2, 2, 2, 3)))
        )
        if self.choose.random() < 0.05:
            shape = (*shape, 0)
        pair = self.tensor(shape)
        kind = self.choose.choice(("plain", "plain", "of a leaf", "leaf"))
        self.log.append(f"t{len(self.tensors)}: new {kind} {shape}")
        if kind != "plain":
            for t in pair:
                t.requires_grad_()
            self.leaves.append(pair)
        if kind == "of a leaf":
            pair = (pair[0] * 2, pair[1] * 2)
        self.add(pair)

    def chain(self) -> None:
        number = self.pick()
        for _ in range(self.choose.choice((1, 1, 2, 3))):
            kind = self.choose.choice(KINDS)
            call = getattr(self.views, kind)(self.tensors[number][1])
            if call is None or (kind == "strided" and _has_no_strides(self.tensors[number][0])):
                continue
            text = f"t{len(self.tensors)}: {kind} of t{number}"
            self.is_silent = self.is_silent or kind == "data"
            pair = self.both(text, lambda side, m: call(m, self.tensors[number][side]))  # noqa: B023
            if pair is None:
                return
            if isinstance(pair[1], (tuple, list)):
                if len(pair[0]) != len(pair[1]):
                    self.fail(f"{len(pair[0])} for {len(pair[1])} views")
                if not pair[1]:
                    return
                at = self.choose.randrange(len(pair[1]))
                self.log[-1] += f" [{at}]"
                pair = (pair[0][at], pair[1][at])
            self.log[-1] += (
                f" {tuple(pair[1].shape)} {tuple(pair[1].stride())} {pair[1].storage_offset()}"
            )
            self.add(pair)
            number = len(self.tensors) - 1

    def write(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        overlap = has_overlap(t)
        shape = tuple(t.shape)
        if shape and self.choose.random() < 0.3:
            shape = tuple(1 if self.choose.random() < 0.3 else s for s in shape)
        if self.leaves and t.numel() and self.choose.random() < 0.25:
            leaf = self.choose.choice(self.leaves)
            value = (leaf[0].sum() * 0.5, leaf[1].sum() * 0.5)
        else:
            value = self.tensor(shape)
        key = self.views.key(t)
        name = self.choose.choice(
            ("add_", "mul_", "copy_", "fill_", "zero_", "item", "sub_", "relu_")
        )
        if overlap and name not in ("fill_", "zero_") and 0 not in t.stride():
            name = "fill_"  # in PyTorch the outcome depends on the order of the elements
        if name == "item" and overlap:
            name = "mul_"
        if name == "copy_" and overlap:  # a copy of one number is a `fill_` in tilewright
            name = "sub_"
        mode = self.choose.choice(("", "", "", "no_grad", "data"))
        calls: dict[str, Callable[[Any, Any], Any]] = {
            "add_": lambda x, v: x.add_(v),
            "sub_": lambda x, v: x.sub_(v, alpha=2),
            "mul_": lambda x, v: x.mul_(v),
            "copy_": lambda x, v: x.copy_(v),
            "fill_": lambda x, v: x.fill_(3.5),
            "zero_": lambda x, v: x.zero_(),
            "relu_": lambda x, v: x.relu_(),
            "item": lambda x, v: x.__setitem__(key, -1.5),
        }

        def write(side: int, m: Any) -> None:
            x = self.tensors[number][side]
            if mode == "data":
                x, self.is_silent = x.data, True
            with m.no_grad() if mode == "no_grad" else nullcontext():
                calls[name](x, value[side])

        self.both(f"t{number}.{name} {mode}", write)

    def compute(self) -> None:
        number = self.pick()
        name = self.choose.choice(("sin", "square", "sum", "clone", "neg"))
        pair = self.both(
            f"t{len(self.tensors)}: {name} of t{number}",
            lambda side, m: getattr(self.tensors[number][side] * 0.5, name)(),
        )
        if pair is not None:
            # PyTorch's results keep the order of their operands' strides.
            layout = self.sides[1].contiguous_format
            self.add((pair[0], pair[1].clone(memory_format=layout)))

    def numpy(self) -> None:
        number = self.pick()
        t = self.tensors[number][1]
        if (
            t.requires_grad
            or not t.numel()
            or any(
                x.requires_grad
                for _, x in self.tensors
                if x._is_view() and x._base is (t._base if t._is_view() else t)
            )
            or (t._is_view() and t._base.requires_grad)
        ):
            return
        number_ = float(self.data.integers(-9, 9))

        def write(side: int, m: Any) -> np.ndarray:
            array = self.tensors[number][side].numpy()
            if array.flags.writeable:
                array.reshape(-1)[0:0]
                array[(0,) * array.ndim] = number_
            return array

        pair = self.both(f"numpy of t{number}", write)
        if pair is not None:
            self.arrays.append(pair)

    def read(self) -> None:
        number = self.pick()
        self.log.append(f"read t{number}")
        self.compare(number)

    def compare(self, number: int) -> None:
        a, b = self.tensors[number]
        x, y = np.asarray(a.detach().tolist()), np.asarray(b.detach().tolist())
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-12, equal_nan=True):
            self.fail(f"t{number}: ours {x.tolist()}, theirs {y.tolist()}")
        try:
            b.is_leaf  # noqa: B018
        except RuntimeError:  # one of several views, whose base was written to
            return
        for flag in ("requires_grad", "is_leaf"):
            if getattr(a, flag) != getattr(b, flag):
                self.fail(f"t{number}.{flag}: ours {getattr(a, flag)}, theirs {getattr(b, flag)}")
        for x, y in self.arrays:
            if not np.allclose(x, y):
                self.fail(f"an array: ours {x.tolist()}, theirs {y.tolist()}")

    def backward(self) -> None:
        wanted = [i for i, (_, t) in enumerate(self.tensors) if t.requires_grad]
        self.choose.shuffle(wanted)

        def loss(side: int, m: Any) -> Any:
            total = sum((self.tensors[i][side] * (k + 1)).sum() for k, i in enumerate(wanted[:3]))
            if not isinstance(total, int):
                total.backward(retain_graph=True)
            return total

        if wanted:
            self.both(f"backward of {wanted[:3]}", loss)
        if self.is_silent:
            return
        for ours, theirs in self.leaves:
            if (ours.grad is None) != (theirs.grad is None):
                self.fail(f"grad: ours {ours.grad}, theirs {theirs.grad}")
            if theirs.grad is not None and not np.allclose(
                np.asarray(ours.grad.tolist()), np.asarray(theirs.grad.tolist()), rtol=1e-9
            ):
                self.fail(f"grad: ours {ours.grad.tolist()}, theirs {theirs.grad.tolist()}")


def main() -> None:
    import torch

    import tilewright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    differing = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            Program(seed, tilewright, torch).run()
        except Differs as error:
            differing += 1
            print(error)
    print(f"{options.count} programs, {differing} differ")


if __name__ == "__main__":
    main()

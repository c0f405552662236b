"""Soundness of recording: random programs against NumPy, op by op.

A program draws its structure from one generator, its data from a second, and the moments at which
values are read, which handles are kept and where epochs end from a third. It is repeated with other
data and other moments, so that it meets its nodes and plans again in other circumstances.
"""

from __future__ import annotations

import gc
import itertools
import random
from typing import Any

import numpy as np
import pytest
from alias_model import DIRECTIONS, Array, elementwise, linear, product

import tilewright as tw
from tilewright import recording
from tilewright.recording import resolving

pytestmark = pytest.mark.computes

SHAPES = ((), (3,), (2, 3), (3, 3), (2, 1), (4, 2), (2, 3, 2), (0, 2))
MODIFIED = "modified by an inplace"


class Slot:
    """One tensor of a program on both sides. arrays: NumPy's views of the tensor's memory."""

    def __init__(self, tensor: Any, array: Array):
        self.tensor, self.array = tensor, array
        self.shared: np.ndarray | None = None


class Program:
    def __init__(self, structure: int, data: int, moments: int):
        self.choose = random.Random(structure)
        self.data = np.random.default_rng(data)
        self.moment = random.Random(moments)
        self.slots: list[Slot] = []
        self.leaves: list[tuple[Any, Array, np.ndarray]] = []  # with the direction of each
        self.recorded = True
        self.log: list[str] = []

    # ---- making tensors ----------------------------------------------------------------------

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self.data.uniform(-1, 1, shape))

    def add(self, tensor: Any, array: Array) -> None:
        self.slots.append(Slot(tensor, array))
        assert tuple(tensor.shape) == array.shape, (tensor.shape, array.shape)

    def new(self) -> None:
        value = self.numbers(self.choose.choice(SHAPES))
        kind = self.choose.choice(("tensor", "tensor", "leaf", "numpy", "zeros", "strided"))
        self.log.append(f"new {kind} {value.shape}")
        if kind == "leaf" and len(self.leaves) < DIRECTIONS and value.size:
            array, direction = Array(value.copy()), self.numbers(value.shape)
            array.tangent[len(self.leaves)] = direction
            tensor = tw.tensor(value, requires_grad=True)
            self.leaves.append((tensor, array, direction))
            self.add(tensor, array)
        elif kind == "numpy":
            self.add(tw.from_numpy(value), Array(value.copy()))
            self.slots[-1].shared = value
        elif kind == "strided" and value.ndim == 2 and value.size:
            wide = self.numbers((value.shape[1] * 2, value.shape[0]))
            shared = wide[::2].T
            self.add(tw.from_numpy(shared), Array(shared.copy()))
            self.slots[-1].shared = shared
        elif kind == "zeros":
            self.add(tw.zeros(value.shape, dtype=tw.float64), Array(np.zeros(value.shape)))
        else:
            self.add(tw.tensor(value), Array(value.copy()))

    def pick(self) -> Slot:
        return self.choose.choice(self.slots[-8:] if self.choose.random() < 0.7 else self.slots)

    def partner(self, slot: Slot, into: bool = False) -> Slot | None:
        """A slot whose shape broadcasts with that of `slot` (or to it, for a write)."""
        fits = []
        for s in self.slots:
            try:
                shape = np.broadcast_shapes(s.array.shape, slot.array.shape)
            except ValueError:
                continue
            if not into or shape == slot.array.shape:
                fits.append(s)
        return self.choose.choice(fits) if fits else None

    def scalar(self) -> float:
        """Some that repeat, some that change from run to run."""
        if self.choose.random() < 0.5:
            return self.choose.choice((0.5, -1.0, 2.0, 1.0))
        return float(self.data.uniform(-1, 1))

    # ---- steps -------------------------------------------------------------------------------

    def unary(self) -> None:
        s = self.pick()
        name = self.choose.choice(("tanh", "sin", "neg", "square", "clone"))
        self.log.append(f"{name} {self.slots.index(s)}")
        function, slope = {
            "tanh": (np.tanh, lambda x: (1 - np.tanh(x) ** 2,)),
            "sin": (np.sin, lambda x: (np.cos(x),)),
            "neg": (np.negative, lambda x: (-1.0,)),
            "square": (np.square, lambda x: (2 * x,)),
            "clone": (np.copy, lambda x: (1.0,)),
        }[name]
        self.add(getattr(s.tensor, name)(), elementwise(function, slope, self.recorded, s.array))

    def binary(self) -> None:
        s = self.pick()
        other = None if self.choose.random() < 0.3 else self.partner(s)
        name = self.choose.choice(("add", "sub", "mul", "rsub"))
        value: Any = self.scalar() if other is None else None
        a, b = s.array, value if other is None else other.array
        x, y = s.tensor, value if other is None else other.tensor
        who = value if other is None else self.slots.index(other)
        self.log.append(f"{name} {self.slots.index(s)} {who}")
        if name == "rsub":
            self.add(y - x, elementwise(np.subtract, lambda p, q: (1.0, -1.0), self.recorded, b, a))
            return
        function, slopes = _BINARY[name]
        self.add(_OPERATORS[name](x, y), elementwise(function, slopes, self.recorded, a, b))

    def fold(self) -> None:
        s = self.pick()
        axis = (
            self.choose.randrange(-s.array.value.ndim, s.array.value.ndim)
            if s.array.shape
            else None
        )
        self.log.append(f"sum {self.slots.index(s)} {axis}")
        self.add(
            s.tensor.sum() if axis is None else s.tensor.sum(axis),
            linear(lambda x: np.sum(x, axis=axis), self.recorded, s.array),
        )

    def matmul(self) -> None:
        pairs = [
            (a, b)
            for a in self.slots
            for b in self.slots
            if len(a.array.shape) == len(b.array.shape) == 2
            and a.array.shape[1] == b.array.shape[0]
        ]
        if pairs:
            a, b = self.choose.choice(pairs)
            self.log.append(f"matmul {self.slots.index(a)} {self.slots.index(b)}")
            self.add(a.tensor @ b.tensor, product(self.recorded, a.array, b.array))

    def view(self) -> None:
        s = self.pick()
        shape = s.array.shape
        kind = self.choose.choice(("select", "slice", "step", "t", "flat", "unsqueeze", "detach"))
        self.log.append(f"{kind} {self.slots.index(s)}")
        if kind == "detach":
            self.add(s.tensor.detach(), s.array.detach())
            return
        if not shape:
            return
        axis = self.choose.randrange(len(shape))
        n = shape[axis]
        if kind == "select" and n:
            i = self.choose.randrange(n)
            self.take(s, (*(slice(None),) * axis, i))
        elif kind == "slice":
            a = self.choose.randint(0, n)
            b = self.choose.randint(a, n)
            self.take(s, (*(slice(None),) * axis, slice(a, b)))
        elif kind == "step":
            self.take(s, (*(slice(None),) * axis, slice(self.choose.randint(0, 1), None, 2)))
        elif kind == "t" and len(shape) > 1:
            self.add(
                s.tensor.transpose(0, -1), s.array.view(lambda x: x.swapaxes(0, -1), self.recorded)
            )
        elif kind == "flat" and s.tensor.is_contiguous() and s.array.value.flags.c_contiguous:
            self.add(s.tensor.view(-1), s.array.view(_flat, self.recorded))
        elif kind == "unsqueeze":
            self.take(s, (*(slice(None),) * axis, None))

    def take(self, s: Slot, key: Any) -> None:
        self.add(s.tensor[key], s.array.view(lambda x: x[(*key, ...)], self.recorded))

    def write(self) -> None:
        s = self.pick()
        other = None if self.choose.random() < 0.3 else self.partner(s, into=True)
        value: Any = self.scalar() if other is None else None
        b = value if other is None else other.array
        y = value if other is None else other.tensor
        name = self.choose.choice(("add", "mul", "set", "sub"))
        who = value if other is None else self.slots.index(other)
        self.log.append(f"{name}_ {self.slots.index(s)} {who}")
        through = self.choose.random()
        target, array, recorded = s.tensor, s.array, self.recorded
        if self._is_of_leaf(target) or through < 0.15:
            with tw.no_grad():
                done = self.assign(target, name, y)
            recorded = False
        elif through < 0.25:
            # After a write through `.data` a backward pass reads the new value, so its gradient is
            # no derivative any more: programs/through_data.py has such programs.
            tracked = any(each.tensor.requires_grad for each in self.slots)
            done = self.assign(target.detach() if tracked else target.data, name, y)
            # What is written to another view of the memory has a history of its own.
            array = Array(array.value)
        elif self._is_refused(target, y):
            with pytest.raises(RuntimeError, match="no_grad mode"):
                self.assign(target, name, y)
            return
        else:
            done = self.assign(target, name, y)
        if name == "set":
            new = b if isinstance(b, Array) else Array(np.full(array.shape, b))
            new = Array(np.broadcast_to(new.value, array.shape), _spread(new, array.shape))
        else:
            function, slopes = _BINARY[name]
            new = elementwise(function, slopes, True, Array(array.value, array.tangent), b)
        assert done
        array.write(new, recorded)

    def _is_refused(self, t: Any, value: Any) -> bool:
        """Whether a write of `value` in grad mode is an error: `t` is a view that was taken
        without it."""
        if not self.recorded or t._chain is None or not t._chain.is_untracked:
            return False
        memory = t._root is None and resolving.resolve_state(t._storage).requires_grad
        return memory or getattr(value, "requires_grad", False)

    def _is_of_leaf(self, t: Any) -> bool:
        """Whether a write to `t` in grad mode is an error: it is a leaf, or looks at one."""
        if not t.requires_grad:
            return False
        if t.is_leaf:
            return True
        storage = t._storage
        return storage is not None and storage._leaf_owner is not None

    def assign(self, t: Any, name: str, value: Any) -> bool:
        if name == "set":
            if isinstance(value, float):
                t.fill_(value)
            elif t.dim() and self.choose.random() < 0.5:
                t[...] = value
            else:
                t.copy_(value)
        else:
            getattr(t, name + "_")(value)
        return True

    def touch_memory(self) -> None:
        """Write through NumPy, to a tensor that was made of an array or exported as one."""
        s = self.pick()
        if s.shared is not None:
            self.log.append(f"numpy {self.slots.index(s)}")
            # The tensor's own writes are in the array already.
            np.testing.assert_allclose(s.shared, s.array.value, rtol=1e-9, atol=1e-12)
            number = float(self.data.uniform(-1, 1))
            s.shared[...] = number
            s.array.value[...] = number
        elif not s.tensor.requires_grad and self.choose.random() < 0.3:
            self.log.append(f"export {self.slots.index(s)}")
            s.shared = s.tensor.numpy()

    def grad_mode(self) -> None:
        self.recorded = not self.recorded
        self.log.append(f"grad mode {self.recorded}")

    # ---- backward ----------------------------------------------------------------------------

    def backward(self) -> None:
        outputs = [s for s in self.slots[-6:] if s.tensor.requires_grad and s.array.value.size]
        if not outputs:
            return
        s = self.choose.choice(outputs)
        retain = self.choose.random() < 0.4
        form = self.choose.choice(("backward", "backward", "grad", "seed"))
        self.log.append(f"{form} {self.slots.index(s)} retain={retain}")
        seed = self.numbers(s.array.shape) if form == "seed" else np.ones(s.array.shape)
        tangents = np.array([np.sum(seed * lane) for lane in s.array.tangent])
        tensors = [t for t, _, _ in self.leaves]
        befores = [None if t.grad is None else t.grad.numpy().copy() for t in tensors]
        try:
            if form == "grad":
                with tw.enable_grad():
                    total = s.tensor.sum()
                found = tw.autograd.grad(total, tensors, retain_graph=retain, allow_unused=True)
                for k, (g, (_, _, direction)) in enumerate(zip(found, self.leaves, strict=True)):
                    self.check_gradient(g, direction, tangents[k])
                return
            s.tensor.backward(tw.tensor(seed), retain_graph=retain)
        except RuntimeError as error:
            message = str(error)
            assert MODIFIED in message or "second time" in message, message
            self.log.append("refused")
            for t, before in zip(tensors, befores, strict=True):
                t.grad = None if before is None else tw.tensor(before)
            return
        for k, (t, before) in enumerate(zip(tensors, befores, strict=True)):
            added = None if t.grad is None else t.grad
            if before is not None:
                added = t.grad - tw.tensor(before)
            self.check_gradient(added, self.leaves[k][2], tangents[k])
        if self.choose.random() < 0.5:
            for t in tensors:
                if t.grad is not None and self.choose.random() < 0.5:
                    t.grad.zero_()
                else:
                    t.grad = None

    def check_gradient(self, g: Any, direction: np.ndarray, tangent: float) -> None:
        found = 0.0 if g is None else float(np.sum(g.detach().numpy() * direction))
        assert found == pytest.approx(tangent, rel=1e-7, abs=1e-9), self.log

    def step(self) -> None:
        """An optimizer's update."""
        for t, array, _ in self.leaves:
            if t.grad is not None:
                self.log.append("step")
                gradient = t.grad.numpy().copy() if self.moment.random() < 0.3 else None
                with tw.no_grad():
                    t.sub_(t.grad, alpha=0.1) if self.choose.random() < 0.5 else t.add_(
                        t.grad * -0.1
                    )
                if gradient is None:
                    gradient = t.grad.numpy()
                array.value -= 0.1 * gradient

    # ---- looking ------------------------------------------------------------------------------

    def read(self, s: Slot) -> None:
        found = (
            s.tensor.detach().numpy() if self.moment.random() < 0.7 else np.array(s.tensor.tolist())
        )
        np.testing.assert_allclose(
            found.reshape(s.array.shape),
            s.array.value,
            rtol=1e-8,
            atol=1e-10,
            err_msg=str(self.log),
        )
        if not s.tensor.requires_grad:
            assert all(not np.any(lane) for lane in s.array.tangent), self.log

    def drop(self) -> None:
        if len(self.slots) > 12:
            k = self.choose.randrange(len(self.slots))
            kept = [t for t, _, _ in self.leaves]
            if not any(self.slots[k].tensor is t for t in kept):
                self.log.append(f"drop {k}")
                del self.slots[k]

    def run(self, length: int) -> None:
        steps = (
            [self.unary] * 3
            + [self.binary] * 5
            + [self.fold, self.matmul, self.new]
            + [self.view] * 5
            + [self.write] * 5
            + [self.backward] * 2
            + [self.step, self.touch_memory, self.grad_mode, self.drop, self.drop]
        )
        for _ in range(3):
            self.new()
        for _ in range(length):
            with tw.set_grad_enabled(self.recorded):
                self.choose.choice(steps)()
            if self.moment.random() < 0.08:
                self.read(self.moment.choice(self.slots))
            if self.moment.random() < 0.03:
                recording.flush()
        for s in self.slots:
            self.read(s)


def _flat(x: np.ndarray) -> np.ndarray:
    out = x.view()
    out.shape = (x.size,)
    return out


def _spread(a: Array, shape: tuple[int, ...]) -> Any:
    return [np.broadcast_to(lane, shape) for lane in a.tangent]


_BINARY = {
    "add": (np.add, lambda p, q: (1.0, 1.0)),
    "sub": (np.subtract, lambda p, q: (1.0, -1.0)),
    "mul": (np.multiply, lambda p, q: (q, p)),
}
_OPERATORS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
}


def check(seed: int, length: int = 40, repeats: int = 3) -> None:
    for k in range(repeats):
        program = Program(seed, seed * 31 + k, seed * 17 + k)
        try:
            program.run(length)
        except Exception as error:
            raise AssertionError(f"seed {seed}, repeat {k}: {program.log}") from error


@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(b, marks=pytest.mark.slow) for b in range(4, 8))]
)
def test_random_programs(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(b, marks=pytest.mark.long) for b in range(4, 20))]
)
def test_many_random_programs(block: int) -> None:
    for seed in itertools.islice(itertools.count(10_000 + block * 200), 200):
        check(seed, length=60, repeats=3)
    for seed in range(80 + block * 6, 80 + block * 6 + 6):
        check(seed)
    gc.collect()

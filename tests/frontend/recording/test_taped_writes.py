"""Writes to parts of memory with gradients, which calls at once put on the tape."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from epoch_programs import calls_at_once

import tilewright as tw
from tilewright.recording import taped_writes


def rows(m: Any, x: Any, w: Any) -> Any:
    for i in range(4):
        x[i] = w * i
    return x


def added(m: Any, x: Any, w: Any) -> Any:
    for i in range(4):
        x[i] += w * i
    return x


def overlapping(m: Any, x: Any, w: Any) -> Any:
    x += w
    for i in range(3):
        x[i : i + 2] *= w
    return x


def columns(m: Any, x: Any, w: Any) -> Any:
    x[:, 1] = w[0]
    x.t()[2] = w.sum() * m.ones(4, dtype=m.float64)
    x[::2, 1:] = w[1:]
    return x


def views_of_views(m: Any, x: Any, w: Any) -> Any:
    part = x[1:3]
    part.copy_(w * w)
    part[0].mul_(w).add_(1)
    part.view(6)[4] = w[2]
    return x


def numbers(m: Any, x: Any, w: Any) -> Any:
    y = x * w + w
    y[0] = 3.0
    y[1].zero_()
    y[2].fill_(w[1])
    return y


def of_itself(m: Any, x: Any, w: Any) -> Any:
    y = w * 2 + x
    y[0] = y[1].clone() * w
    y[2] = y[3]
    y[3] = y[3].clone() * y[2].clone()
    return y


def whole(m: Any, x: Any, w: Any) -> Any:
    x.copy_(w.expand(4, 3))
    first = x[0]
    x.mul_(w)
    first += w[0]
    return x


def read_between(m: Any, x: Any, w: Any) -> Any:
    read = []
    for i in range(4):
        x[i] = w * i
        read.append(x[i].sum())  # its derivative reads nothing that is written later
        x[i][0] = read[-1]
    return x + m.stack(read).sum()


def nothing(m: Any, x: Any, w: Any) -> Any:
    x[2:2] = w
    x[1] = w
    return x


def turned(m: Any, x: Any, w: Any) -> Any:
    """The memory isn't in the order of its dimensions at first."""
    y = m.arange(12.0, dtype=m.float64).reshape(3, 4).t() * 2
    y[0] = w[0]
    y[1] += w
    y[:, 0] *= w[2]
    return y


PROGRAMS: list[Callable[..., Any]] = [
    rows, added, overlapping, columns, views_of_views, numbers, of_itself, whole, read_between,
    nothing, turned,
]  # fmt: skip


def outcome(m: Any, program: Callable[..., Any], times: int = 3) -> list[Any]:
    """The value, version, gradients and second derivatives of a program, each time that it runs."""
    found = []
    for _ in range(times):
        w = m.tensor([1.0, -2.0, 3.0], dtype=m.float64, requires_grad=True)
        made = program(m, m.zeros(4, 3, dtype=m.float64), w)
        (made**2).sum().backward()
        again = program(m, m.zeros(4, 3, dtype=m.float64), w)
        (g,) = m.autograd.grad((again**3).sum(), w, create_graph=True)
        (second,) = m.autograd.grad((g * g).sum(), w)
        found += [made.detach(), w.grad, g.detach(), second, m.tensor(float(made._version))]
    return [np.asarray(each) for each in found]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_pytorch(torch: Any, program: Callable[..., Any], at_once: bool) -> None:
    with calls_at_once(at_once):
        ours = outcome(tw, program)
    for a, b in zip(ours, outcome(torch, program), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_are_on_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is one write of memory where it lies; Python's second one, of `x[i]`, is none."""
    count = 0
    written = taped_writes.written

    def noted(*args: Any) -> bool:
        nonlocal count
        count += 1
        return written(*args)

    monkeypatch.setattr(taped_writes, "written", noted)
    with calls_at_once(True):
        w = tw.ones(3, requires_grad=True)
        x = tw.zeros(50, 3)
        x[0] = w
        memory = x.data_ptr()
        for i in range(1, 50):
            x[i] += w * i
        assert count == 50
        assert x.data_ptr() == memory
        x.sum().backward()
    np.testing.assert_array_equal(w.grad, np.full(3, 1 + sum(range(50))))


@pytest.mark.parametrize("at_once", [False, True])
def test_of_what_a_derivative_reads(at_once: bool) -> None:
    with calls_at_once(at_once):
        w = tw.ones(3, requires_grad=True)
        x = tw.zeros(4, 3)
        x[0] = w
        read = (x[0] * x[0]).sum()
        x[1] = w
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            read.backward()


def test_of_a_leaf() -> None:
    w = tw.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        w[0] = w.sum()


def test_with_hooks(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        seen: list[Any] = []
        w = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
        x = w * m.ones(2, 3)
        x.register_hook(lambda g: seen.append(g.tolist()))
        x[0] = w * 2
        x.register_hook(lambda g: seen.append(g.tolist()))
        x[1][1:] *= w[1:]
        (x * x).sum().backward()
        return [*seen, w.grad.tolist()]

    with calls_at_once(True):
        ours = run(tw)
    assert ours == run(torch)

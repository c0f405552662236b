"""Writes to parts of tensors, op by op: in place where nobody can tell, and right everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording
from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.node import Node
from tilewright.ir.passes.writes import write_of
from tilewright.ir.shape import Size
from tilewright.recording import views
from tilewright.runtime import tiers
from tilewright.runtime.baseline.program import Program

pytestmark = pytest.mark.usefixtures("fresh_tables")


def leaf(number: int, *shape: int) -> Node:
    return ops.leaf(number, Size(shape), float32)


def slices(shape: tuple[int, ...], **at: Any) -> tuple[Any, ...]:
    """The attrs of a slice; d0=(1, 3, 1) is that of the first dimension."""
    every = [at.get(f"d{i}", (0, n, 1)) for i, n in enumerate(shape)]
    return tuple(zip(*every))


def chain(base: Node, *links: Any) -> views.Chain:
    found: Any = base.shape
    for view, *attrs in links:
        found = views.chained(found, view, tuple(attrs))
    return found


def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each whole tensor that a write copies."""
    from tilewright.runtime.baseline import writes

    seen: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def array(self, x: Any, **options: Any) -> Any:
            seen.append(np.asarray(x).nbytes)
            return np.array(x, **options)

    monkeypatch.setattr(writes, "np", Counting())
    return seen


def test_the_part_is_found_through_views() -> None:
    x, value = leaf(0, 4, 6, 5), leaf(1, 2, 3)
    inner = chain(
        x,
        (views.SLICE, *slices((4, 6, 5), d0=(2, 3, 1))),
        (views.SELECT, *slices((1, 6, 5)), (1, 2)),
        (views.T, (1, 0)),
        (views.SLICE, *slices((5, 6), d0=(1, 5, 2), d1=(0, 3, 1))),
    )
    node = views.write(x, inner, value)
    found = write_of(node)
    assert found is not None and found.base is x and found.value is value
    a, v = np.zeros((4, 6, 5), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = a.copy()
    expected[2].T[1:5:2, 0:3] = v
    np.testing.assert_array_equal(Program((node,)).run([a, v], [])[0], expected)
    assert not a.any(), "the leaf is not the program's"


def test_what_is_no_write_is_not_taken_for_one() -> None:
    x, y = leaf(0, 4), leaf(1, 4)
    part = ops.pad(
        ops.slice_(x, (0,), (2,), (1,)) > 0, (0,), (2,), None, ops.constant(False, tw.bool)
    )
    assert write_of(ops.where(part, y, x)) is None, "the mask is data"
    true = ops.expand(ops.constant(True, tw.bool), Size((2,)))
    outside = ops.pad(true, (0,), (2,), None, ops.constant(True, tw.bool))
    assert write_of(ops.where(outside, y, x)) is None, "everything is inside"
    assert write_of(ops.where(x > 0, y, x)) is None


def test_a_chain_of_writes_copies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = copies(monkeypatch)
    node = x = leaf(0, 100, 8)
    for i in range(50):
        node = views.write(node, chain(x, (views.SLICE, *slices((100, 8), d0=(i, i + 1, 1)))),
                           leaf(1, 1, 8) + float(i))  # fmt: skip
    a = np.zeros((100, 8), np.float32)
    (found,) = Program((node,)).run([a, np.ones((1, 8), np.float32)], [])
    np.testing.assert_array_equal(found[:50, 3], np.arange(1.0, 51))
    assert seen == [a.nbytes] and not a.any()


def test_memory_that_is_read_later_is_left_alone() -> None:
    """A view of the old tensor is a result, or is read after the write."""
    x = leaf(0, 6)
    first = x * 2
    part = chain(first, (views.SLICE, *slices((6,), d0=(0, 3, 1))))
    view = ops.slice_(first, (0,), (3,), (1,))
    written = views.write(first, part, view + 10)
    late = view + ops.slice_(written, (0,), (3,), (1,))
    a = np.arange(6, dtype=np.float32)
    for roots in ((written, view), (view, written), (late,), (first, written), (late, written)):
        expected = {
            view: a[:3] * 2,
            first: a * 2,
            written: np.concatenate([a[:3] * 2 + 10, a[3:] * 2]),
        }
        expected[late] = expected[view] + expected[written][:3]
        for found, root in zip(Program(roots).run([a], []), roots, strict=True):
            np.testing.assert_array_equal(found, expected[root])


def test_a_donated_leaf_is_written_in_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = copies(monkeypatch)
    x, value = leaf(0, 8), leaf(1, 2)
    at = chain(x, (views.SLICE, *slices((8,), d0=(2, 4, 1))))
    node = views.write(x, at, value * 3)
    buffers = [np.zeros(8, np.float32), np.ones(2, np.float32)]
    (found,) = Program((node,)).run(buffers, [], [(0, 0)])
    assert found is buffers[0] and not seen
    np.testing.assert_array_equal(found, [0, 0, 3, 3, 0, 0, 0, 0])
    # What follows the write may fail, so the leaf keeps its value until all is done.
    later = ops.sqrt(node)
    found, root = Program((node, later)).run(buffers, [], [(0, 0)])
    assert found is not buffers[0] and len(seen) == 1
    np.testing.assert_array_equal(root, np.sqrt(found))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tiers, "mode", tiers.BASELINE)
    yield
    recording.flush()
    recording.clear_tables()


@pytest.mark.usefixtures("eager")
def test_a_write_a_step_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that is filled a row a step keeps its memory."""
    x = tw.zeros(64, 16)
    x.sum().item()
    seen = copies(monkeypatch)
    for i in range(64):
        x[i] = float(i)
        recording.flush()
    assert x[:, 3].tolist() == list(range(64)) and not seen
    held = x.numpy()
    x[0] = 5
    assert held[0, 0] == 5


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("seed", range(30))
def test_random_writes_and_readers(seed: int) -> None:
    """Writes through views, kept copies and views, values read early or late, beside NumPy."""
    draw = random.Random(seed)
    ours, theirs = tw.arange(48.0).reshape(6, 8).clone(), np.arange(48.0, dtype=np.float32)
    theirs = theirs.reshape(6, 8).copy()
    kept: list[tuple[Any, Any]] = []
    for _ in range(25):
        a, b = draw.randrange(5), draw.randrange(7)
        at = draw.choice([
            (slice(a, a + 1),), (a,), (slice(a, None), slice(b, None, 2)), (slice(None), b),
            (slice(0, 6, 2), slice(b, b + 1)),
        ])  # fmt: skip
        kind = draw.randrange(6)
        if kind == 0:
            ours[at], theirs[at] = 3.0, 3.0
        elif kind == 1:
            ours[at] += ours[at] * 0.5
            theirs[at] += theirs[at] * np.float32(0.5)
        elif kind == 2:
            ours[1:] = ours[:-1]
            theirs[1:] = theirs[:-1].copy()
        elif kind == 3:
            kept.append((ours[at], theirs[at]))
        elif kind == 4:
            kept.append((ours[at] + 1, theirs[at] + 1))
        else:
            ours.t()[b][at[0] if isinstance(at[0], slice) else slice(a, a + 2)] = 7
            theirs.T[b][at[0] if isinstance(at[0], slice) else slice(a, a + 2)] = 7
        if draw.random() < 0.3:
            recording.flush()
        if kept and draw.random() < 0.2:
            x, y = draw.choice(kept)
            np.testing.assert_array_equal(x.numpy() if draw.random() < 0.3 else x.tolist(), y)
    for x, y in [(ours, theirs), *kept]:
        np.testing.assert_array_equal(x.tolist(), y)

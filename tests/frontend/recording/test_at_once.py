"""Small copies that are made at once: the values, views, versions and gradients of PyTorch, and one
plan for every round of a loop that fills or joins tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from epoch_programs import calls_at_once

import tilewright as tw
from tilewright.ir import node as graph
from tilewright.recording import epoch, flushing


def fill(m: Any) -> Any:
    x = m.zeros(5).long()
    for i in range(5):
        x[i] = i * 3
    return x, x._version


def fill_rows(m: Any) -> Any:
    """One-hot lines, as character-level programs make them."""
    x = m.zeros(3, 1, 4)
    x[1][0][2] = 1
    x[-1, 0] = 2.5
    x[0:2, :, 1] = 7
    copy = x.clone()
    x[0] = 9
    return copy, x


def windows_that_wait(m: Any) -> Any:
    """Parts that are read before a write, of memory that NumPy has seen."""
    out = []
    for _ in range(3):
        x = m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        x.numpy()
        doubled = x[1:2] * 2
        x[1, 0] = 100
        out.append((doubled.tolist(), x, x[1:2] * 3))
    return out


def views_see_it(m: Any) -> Any:
    base = m.ones(4)
    doubled, part, turned = base * 2, base[1:3], base.view(2, 2).T
    base[0] = 5
    part[0] = 11
    base[2] = 12
    return base, doubled, part, turned, part[0].item()


def numpy_sees_it(m: Any) -> Any:
    array = np.arange(6.0)
    t = m.from_numpy(array)
    seen = t * 1
    t[2] = 100
    t[3:5] = m.zeros(2, dtype=m.float64)
    ours = m.zeros(3)
    shown = ours.numpy()
    ours[1] = 8
    shown[0] = -3
    return array, seen, shown, ours


def rows_of_tensors(m: Any) -> Any:
    buffer = m.zeros(4, 3)
    row = m.tensor([1.0, 2.0, 3.0])
    for i in range(4):
        buffer[i] = row
    row[0] = 7
    buffer[1] = buffer[0]
    buffer[2, 1:] = m.tensor([[4.0, 5.0]])
    return buffer, row


def dtypes(m: Any) -> Any:
    found = []
    for dtype in (m.bool, m.int32, m.uint8, m.float16, m.bfloat16, m.float64, m.complex64):
        x = m.zeros(3, dtype=dtype)
        x[0], x[1], x[2] = True, 3, 1.9
        found.append(x)
    return found


def errors(m: Any) -> Any:
    x, found = m.zeros(3), []
    for key, value in ((7, 1), (0, m.ones(2)), ((0, 0), 1), (slice(None, None, -1), 1)):
        try:
            x[key] = value
        except Exception as error:
            found.append(type(error).__mro__[-3].__name__)
    with pytest.raises(RuntimeError, match="leaf"):
        m.ones(2, requires_grad=True)[0] = 1
    return found, x


def gradients(m: Any) -> Any:
    w = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scale = m.ones(3)
    scale[1] = 4
    loss = (w * scale).sum()
    loss.backward()
    y = w * 2
    y[0] = 10
    y.sum().backward()
    with m.no_grad():
        w[2] = 9
    return w, w.grad


def joined(m: Any) -> Any:
    kept = [m.tensor([float(i), i + 0.5]) for i in range(10)]
    kept.append(kept[0])
    found = [m.stack(kept), m.cat(kept), m.stack(kept, 1), m.cat([k[None] for k in kept], -1)]
    kept[0][0] = 77
    found += [m.stack(kept), m.stack([m.tensor(i) for i in range(9)])]
    mixed = [m.tensor([1]) for _ in range(8)] + [m.tensor([0.5])]
    found.append(m.cat(mixed))
    leaf = m.tensor([1.0, 2.0], requires_grad=True)
    m.stack([*kept, leaf, leaf]).sum().backward()
    with pytest.raises(RuntimeError):
        m.stack([*kept, m.ones(3)])
    return *found, leaf.grad


def picked_by_masks(m: Any) -> Any:
    x = m.linspace(-3, 4, 24).reshape(2, 3, 4)
    found = [x[x > 0], (x * 2)[x > 0], x[:, x[0].sum(1) > 0], x[..., x[0, 0] < -1], x[x > 99]]
    found += [x[0].T[x[0].T > -2], x.half()[x > 0].float(), (x > 0)[x > 0.5], x[m.tensor(True)]]
    found += [x.masked_select(x[0] > -2), x[1:, ::2][x[1:, ::2] > 0], x[0, 0, 0][x[0, 0, 0] < 0]]
    own = x[x > 0]
    own += 1
    x.zero_()
    with pytest.raises(IndexError, match="shape of the mask"):
        x[m.ones(3, dtype=m.bool)]
    return *found, own, x


def gradients_through_masks(m: Any) -> Any:
    x = m.linspace(-3, 4, 6, requires_grad=True)
    made = x[x > 0]
    (made * made).sum().backward()
    with m.no_grad():
        alone = x[x < 0]
    twice = x.detach().requires_grad_()
    (twice * 3)[twice > 1].sum().backward()
    return x.grad, alone, alone.requires_grad, made.requires_grad, twice.grad


def picked_by_positions(m: Any) -> Any:
    """Lists, positions, masks and numbers in one key, of which NumPy orders some otherwise."""
    x = m.arange(24.0).reshape(2, 3, 4)
    at, one, rows = m.tensor([2, 0, -1]), m.tensor(1), m.tensor([[0], [1]])
    mask = m.tensor([True, False, True])
    found = [
        x[0, :, [1, 2]],
        x[one, at, 1:],
        x[:, at, one],
        x[rows, at],
        x[:, mask, -1],
        x[one, one],
    ]
    found += [x[rows, :, at], x[1, None, at], x[..., at], x[:, mask, at[:2]], x[one, ..., one]]
    for key in ((0, 5), (0, at + 2), (0, 0, mask), (one, one, one, one)):
        with pytest.raises(IndexError):
            x[key].tolist()
    return found


def written_by_positions(m: Any) -> Any:
    found = []
    at, one, rows = m.tensor([2, 0, -3]), m.tensor(1), m.tensor([[0], [1]])
    mask, two = m.tensor([True, False, True]), m.tensor([[5.0, 6.0]])
    keys = [(0, [1, 2]), (one, at), (slice(None), one), mask.new_tensor([True, False]), (0, mask)]
    keys += [
        (rows, at),
        (slice(None), mask, -1),
        (one, slice(None), at[:2]),
        (rows, slice(None), at),
    ]
    keys += [
        [1],
        (slice(None), [0, 1], one),
        m.ones(2, 3, 4).bool(),
        (Ellipsis, at),
        (0, 0, at[:0]),
    ]
    for key in keys:
        x = m.arange(24.0).reshape(2, 3, 4)
        part = x[1]
        x[key] = -1
        x[key] = x.new_tensor(7.5)
        x[key] += 1
        found.append((x, part, x._version, part * 2))
    x = m.zeros(2, 3)
    x[:, mask] = two
    x[0, mask] = two
    for key, value in (((0, at), two), ((0, 4), 1), ((0, at + 2), 1), (0, x), (mask, 1)):
        with pytest.raises((IndexError, RuntimeError)):
            x[key] = value
            x.tolist()
    whole = m.zeros(3, dtype=m.int64)
    whole[mask] = 2.7
    whole[at] += m.tensor([1, 2, 3])
    return found, x, whole


def parts_updated(m: Any) -> Any:
    """Counts and sums in a loop, and what may not be at once."""
    at = m.tensor([2, 0, 2])
    counts, sums, rows = m.zeros(3, 3, dtype=m.int32), m.zeros(3, 4), m.arange(12.0).view(3, 4)
    for i in range(3):
        counts[at[i], i] += 1
        sums[at[i]] += rows[i]
        sums[:, 1] *= 0.5
        sums[i, 1:3] -= rows[i, 0]
        rows[i] -= rows[i]
        rows[1:, 0] += rows[:2, 3]
    before = sums * 1
    sums[0] += 2
    sums[1] += m.ones(4, dtype=m.float64)
    sums[2][1:].add_(1, alpha=3)
    with pytest.raises(RuntimeError):
        sums[0] += m.ones(2, 4)
    with pytest.raises(RuntimeError):
        counts[0] += 0.5
    leaf = m.ones(2, requires_grad=True)
    made = m.zeros(2, 2)
    made[0] += leaf
    made[0] *= 3
    made.sum().backward()
    with m.no_grad():
        leaf[0] += 1
    return counts, sums, rows, before, sums._version, leaf, leaf.grad, leaf._version


def keys_of_numpys_integers(m: Any) -> Any:
    x, two, end = m.arange(24.0).view(2, 3, 4), np.int64(2), np.int32(-1)
    found = [x[np.uint8(1)], x[0, two], x[end, :, two], x[np.int64(1), ..., end]]
    x[np.int64(1)][two][end] = 100
    x[end, two] += 1
    x[0, np.int16(0), 1:] = m.ones(3)
    with pytest.raises(IndexError):
        x[np.int64(2)]
    return found, x


def calls_of_several_calls(m: Any) -> Any:
    """A call that overwrites what its own parts read."""
    x = m.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=m.float64, requires_grad=True)
    low = m.tensor([[0.0, 2.5], [1.0, 5.0]], dtype=m.float64, requires_grad=True)
    found = []
    for write in (
        lambda t: t.renorm_(2, 0, 1.0),
        lambda t: t.clamp_(low, low + 1),
        lambda t: t[0].renorm_(2, 0, 1.0) if t.dim() > 2 else t.T.renorm_(2, 1, 2.0),
    ):
        for start in (lambda: x.clone(), lambda: x.sin(), lambda: m.stack([x, x * 2])[1]):
            made = start()
            write(made)
            grads = m.autograd.grad((made * made).sum(), (x, low), allow_unused=True)
            found.append([made, *[g for g in grads if g is not None]])
    return rounded(found)


def rounded(found: Any) -> Any:
    return [rounded(f) if isinstance(f, list) else f.detach().round(decimals=9) for f in found]


PROGRAMS = (
    calls_of_several_calls,
    fill, fill_rows, views_see_it, numpy_sees_it, rows_of_tensors, dtypes, errors, gradients,
    keys_of_numpys_integers, joined, picked_by_positions, written_by_positions, parts_updated,
    picked_by_masks, gradients_through_masks, windows_that_wait,
)  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("at_once", (False, True), ids=("recorded", "at once"))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values(torch: Any, program: Any, at_once: bool) -> None:
    with calls_at_once(at_once):
        ours = plain(program(tw))
    assert ours == plain(program(torch))


def test_a_value_that_was_saved_before_is_an_error(torch: Any) -> None:
    with calls_at_once(True):
        for m in (tw, torch):
            kept = m.ones(2, 2, requires_grad=True).clone()
            saved = kept.sin()
            kept.renorm_(2, 0, 1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace"):
                saved.sum().backward()


def rounds(make: Any) -> int:
    """The number of outcomes that ten rounds of a program leave behind, after the first two."""
    weight = tw.ones(4, requires_grad=True)

    def learn(i: int) -> None:
        (make(i) * weight).sum().backward()
        weight.grad = None

    for i in range(2):
        learn(i)
        flushing.flush()
    before = len(flushing._outcomes)
    for i in range(2, 12):
        learn(i)
        flushing.flush()
    return len(flushing._outcomes) - before


@pytest.mark.parametrize("kind", (int, np.int64))
def test_other_places_and_numbers_are_one_plan(kind: Any) -> None:
    def line(i: int) -> Any:
        x = tw.zeros(3, 4)
        for row in range(3):
            x[kind(row)][kind((i * 7 + row) % 4)] = i + row
        return x

    assert rounds(line) == 0


def test_joined_tensors_are_one_plan() -> None:
    rng = np.random.default_rng(0)
    memory = [tw.tensor(rng.standard_normal(4).astype("f")) for _ in range(12)]

    def batch(_: int) -> Any:
        return tw.stack([memory[j] for j in rng.integers(0, 12, 16)])

    assert rounds(batch) == 0


def test_masks_leave_no_call_behind() -> None:
    x = tw.arange(12.0)
    x[x > 3].numpy()
    before = sum(map(len, epoch.tables.values())), graph.table_size()
    for i in range(8):
        mask = tw.from_numpy(np.arange(12) > i)
        assert x[mask].tolist() == list(range(i + 1, 12))
    assert (sum(map(len, epoch.tables.values())), graph.table_size()) == before


def test_compiled_functions_record_their_writes() -> None:
    @tw.compile
    def masked(x: Any) -> Any:
        mask = tw.zeros(3)
        mask[1] = 2.0
        return x * mask

    for i in range(5):
        assert masked(tw.tensor([float(i)] * 3)).tolist() == [0.0, 2.0 * i, 0.0]
    assert masked.replays


@pytest.mark.parametrize("shape", [(6,), (6, 6)])
@pytest.mark.parametrize("integer", [int, np.int64])
def test_counts_of_read_numbers_are_made_at_once(shape: tuple[int, ...], integer: Any) -> None:
    """The element that `counts[i] += 1` writes back is the one that it has read, so nothing is
    recorded, and no graph for each order of the numbers."""
    rng = np.random.default_rng(0)
    found, expected = tw.zeros(shape, dtype=tw.int64), np.zeros(shape, np.int64)
    for numbers in rng.integers(-6, 6, (40, len(shape))):
        key = tuple([integer(n) for n in numbers]) if len(shape) > 1 else integer(numbers[0])
        found[key] += 1
        expected[key] += 1
        state = found if found._storage is None else found._storage
        assert state._node is None
    assert found.tolist() == expected.tolist() and found._version == 80


def test_parts_are_filled_and_copied_at_once(torch: Any) -> None:
    """Rows in an order that the program draws make no graph."""
    rng = np.random.default_rng(0)
    found, expected = tw.zeros(6, 4, dtype=tw.float32), torch.zeros(6, 4)
    for i, j, value in zip(*rng.integers(0, 6, (2, 30)), rng.random(30), strict=True):
        row = rng.random(4).astype(np.float32)
        for m, x in ((tw, found), (torch, expected)):
            x[int(i)].fill_(float(value))
            x[int(j)].copy_(m.tensor(row))
            x[int(i), 1:3].zero_()
            x.t()[1].copy_(m.tensor(2.0))
        state = found if found._storage is None else found._storage
        assert state._node is None
    assert found.tolist() == expected.tolist() and found._version == expected._version

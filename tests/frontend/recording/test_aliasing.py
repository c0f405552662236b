"""Tensors that share memory: views, in-place writes, NumPy, DLPack, copies and pickles."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw
from tilewright.recording import clock

pytestmark = pytest.mark.computes

# Each script runs under both libraries and returns what must be equal.
SCRIPTS: dict[str, Any] = {}


def script(function: Any) -> Any:
    SCRIPTS[function.__name__] = function
    return function


@script
def chains_of_views(m: Any) -> Any:
    x = m.arange(24.0).reshape(2, 3, 4)
    v = x[:, 1:].transpose(1, 2)[:, ::2]
    v[0, 0] = -1
    v += 10
    w = v.select(1, 1).unsqueeze(0)
    w.mul_(2)
    return x, v, w


@script
def writes_through_views(m: Any) -> Any:
    x = m.zeros(4, 4)
    x[:, 0] = 1
    x[1] += 2
    x.view(-1)[5] = 7
    x.t()[3] = m.arange(4.0)
    x[::2, ::2].fill_(9)
    x.flatten()[15] -= 1
    x[x > 8] = 0
    x[[0, 1], [1, 2]] += 100
    return x


@script
def a_vector_flattened_is_itself(m: Any) -> Any:
    found = []
    for x in (m.ones(3), m.ones(3) * 2, m.ones(3).requires_grad_() * 2):
        first, again, raveled = x.flatten(), x.flatten(), x.ravel()
        again.add_(1)
        found += [first is x, again is x, x, first, raveled]
        if x.requires_grad:
            found.append(x.flatten() is x)
    return tuple(m.tensor(f) if isinstance(f, bool) else f for f in found)


@script
def views_see_later_writes(m: Any) -> Any:
    x = m.ones(2, 3)
    a, b, c = x.view(6), x.t(), x.unsqueeze(0).expand(4, 2, 3)
    x.mul_(3)
    x[0, 0] = 5
    return a, b, c


@script
def rebinding_is_no_write(m: Any) -> Any:
    x = m.ones(3)
    y = x
    x = x + 1
    z = x
    x += 1
    return x, y, z


@script
def without_grad_and_through_data(m: Any) -> Any:
    w = m.ones(3, requires_grad=True)
    with m.no_grad():
        w[0] = 5
        w.mul_(2)
    w.data[1] = -1
    w.data.add_(1)
    w.detach()[2] = 30
    return w, m.tensor(float(w.requires_grad)), m.tensor(float(w.is_leaf))


@script
def data_is_replaced(m: Any) -> Any:
    w = m.ones(3, requires_grad=True)
    alias = w.detach()
    new = m.arange(3.0)
    w.data = new
    new[0] = 10
    (w * w).sum().backward()
    with m.no_grad():
        w.sub_(w.grad, alpha=0.5)
    return w, alias, new, w.grad


@script
def detached_tensors_share(m: Any) -> Any:
    x = m.ones(3, requires_grad=True)
    y = x * 2
    d = y.detach()
    d[0] = 100
    return y, d


@script
def detached_and_written_with_gradient(m: Any) -> Any:
    w = m.full((3,), 2.0, requires_grad=True)
    h = (w * 3).detach()
    h.mul_(w)
    h[0] = w[1] * 10
    h.sum().backward()
    return h, w.grad


@script
def copies_do_not_share(m: Any) -> Any:
    x = m.zeros(2, 2)
    y, z = x.clone(), x.t().contiguous()
    r = x.t().reshape(-1)
    s = x.reshape(-1)
    x += 1
    return x, y, z, r, s


@script
def in_place_results_are_the_tensor(m: Any) -> Any:
    x = m.ones(3)
    assert x.add_(1) is x and x.zero_() is x and x.copy_(m.ones(3)) is x
    before = x
    x += 1
    assert before is x
    return x


@script
def overlapping_copies(m: Any) -> Any:
    x = m.arange(6.0)
    x[1:] = x[:-1].clone()
    y = m.arange(4.0).reshape(2, 2)
    y.copy_(y.t().clone())
    return x, y


@script
def out_arguments(m: Any) -> Any:
    x = m.zeros(3, 3)
    m.add(m.ones(3), 1, out=x[1])
    buffer = m.empty(3)
    m.exp(m.zeros(3), out=buffer)
    m.mul(buffer, 5, out=buffer)
    return x, buffer


@script
def swapped_rows(m: Any) -> Any:
    x = m.arange(6.0).reshape(3, 2)
    x[0], x[1] = x[1].clone(), x[0].clone()
    i = m.tensor([2, 0, 1])
    x[:] = x[i]
    return x


@script
def gradients_through_writes(m: Any) -> Any:
    w, v = m.ones(3, requires_grad=True), m.full((3,), 2.0, requires_grad=True)
    x = w * 3
    x[0] = v[1] * v[2]
    x[1:] *= v[0]
    x.sum().backward()
    return w.grad, v.grad, x


@script
def gradients_through_masks(m: Any) -> Any:
    w = m.tensor([-1.0, 2.0, -3.0], requires_grad=True)
    x = w * w
    y = x.clone()
    y[w < 0] = 0
    z = x.masked_fill(w > 0, 5)
    (y + z * 2).sum().backward()
    return y, z, w.grad


@script
def gradients_through_index_put(m: Any) -> Any:
    w, v = m.ones(4, requires_grad=True), m.tensor([5.0, 6.0], requires_grad=True)
    x = w * 2
    x.index_put_((m.tensor([0, 2]),), v)
    x.index_add_(0, m.tensor([1, 1]), v)
    x.scatter_(0, m.tensor([3]), v[:1])
    (x * m.arange(1.0, 5.0)).sum().backward()
    return x, w.grad, v.grad


@script
def gradients_of_slices_of_a_buffer(m: Any) -> Any:
    w = m.full((2,), 3.0, requires_grad=True)
    buffer = m.zeros(3, 2)
    for i in range(3):
        buffer[i] = w * (i + 1)
    buffer[1].mul_(w)
    buffer.pow(2).sum().backward()
    return buffer, w.grad


@script
def overwritten_tensors_still_require_grad(m: Any) -> Any:
    w = m.ones(3, requires_grad=True)
    x = w * 2
    x.zero_()
    y = w * 3
    y[0] = 7
    (x.sum() + y.sum()).backward()
    return w.grad, m.tensor(float(x.requires_grad))


@script
def views_taken_before_a_write_with_gradient(m: Any) -> Any:
    w = m.ones(3, requires_grad=True)
    base = m.zeros(2, 3)
    row = base[0]
    base.copy_(m.stack([w, w * 2]))
    (row * 5).sum().backward()
    return row, w.grad


@script
def gradient_buffers_are_shared(m: Any) -> Any:
    w = m.ones(2, requires_grad=True)
    (w * 3).sum().backward()
    held = w.grad
    (w * 4).sum().backward()
    alias = held.clone()
    w.grad.zero_()
    return held, alias


@script
def squeezed_in_place(m: Any) -> Any:
    x = m.zeros(1, 3)
    y = x[0]
    x.squeeze_()
    x[1] = 4
    x.unsqueeze_(1)
    x.t_()
    return x, y


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(torch: Any, name: str) -> None:
    agree(SCRIPTS[name](tw), SCRIPTS[name](torch))


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_with_values_read_at_once(torch: Any, name: str, monkeypatch: Any) -> None:
    """Epochs of one operation each: the same results."""

    monkeypatch.setattr(clock, "limit", 0)
    monkeypatch.setattr(clock, "usual_limit", 0)
    agree(SCRIPTS[name](tw), SCRIPTS[name](torch))


ERRORS = {
    "leaf": lambda m: m.ones(2, requires_grad=True).add_(1),
    "leaf by operator": lambda m: m.ones(2, requires_grad=True).__iadd__(1),
    "leaf by index": lambda m: m.ones(2, requires_grad=True).__setitem__(0, 1),
    "view of a leaf": lambda m: m.ones(2, requires_grad=True)[0].add_(1),
    "leaf squeezed": lambda m: m.ones(1, 2, requires_grad=True).squeeze_(),
    "expanded": lambda m: m.ones(1, 2).expand(3, 2).add_(1),
    "wider": lambda m: m.ones(2).add_(m.ones(3, 2)),
    "numpy of one that requires grad": lambda m: m.ones(2, requires_grad=True).numpy(),
    "array of one that requires grad": lambda m: np.asarray(m.ones(2, requires_grad=True)),
    "saved by exp": lambda m: _changed(m, lambda w: w.exp(), lambda x: x.add_(1)),
    "saved by mul": lambda m: _changed(
        m, lambda w: w * 2, lambda x: x, then=lambda x: x * x, late=True
    ),
    "saved, changed through a view": lambda m: _changed(
        m, lambda w: w.exp(), lambda x: x[0].zero_()
    ),
    "saved, changed through data is silent": None,
    "leaf changed before backward": lambda m: _leaf_changed(m),
    "float to int": lambda m: m.ones(2, dtype=m.int64).add_(0.5),
    "requires_grad of ints": lambda m: m.ones(2, dtype=m.int64).requires_grad_(),
    "len of 0-d": lambda m: len(m.tensor(1)),
    "iteration of 0-d": lambda m: list(m.tensor(1)),
    "bool of many": lambda m: bool(m.ones(2)),
    "bool of none": lambda m: bool(m.ones(0)),
    "item of many": lambda m: m.ones(2).item(),
    "index of a float": lambda m: [1, 2][m.tensor(1.0)],
    "detach_ of a view": lambda m: (m.ones(2, requires_grad=True) * 2)[0].detach_(),
}


def _changed(m: Any, make: Any, write: Any, then: Any = None, late: bool = False) -> None:
    w = m.ones(2, requires_grad=True)
    x = make(w)
    y = then(x) if then else x * 1
    with m.no_grad() if late else m.enable_grad():
        x.add_(1) if late else write(x)
    y.sum().backward()


def _leaf_changed(m: Any) -> None:
    w = m.ones(2, requires_grad=True)
    loss = (w * w).sum()
    with m.no_grad():
        w.add_(1)
    loss.backward()


@pytest.mark.parametrize("name", [n for n, call in ERRORS.items() if call])
def test_error(torch: Any, name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(theirs.type):
        ERRORS[name](tw)


def test_a_saved_value_read_before_it_is_changed() -> None:
    for reads in (lambda x, y: None, lambda x, y: y.tolist(), lambda x, y: x.tolist()):
        w = tw.ones(2, requires_grad=True)
        x = w.exp()
        y = x * 1
        reads(x, y)
        x.add_(1)
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*test_aliasing"):
            y.sum().backward()


# ---- NumPy -----------------------------------------------------------------------------------


def test_from_numpy_shares_both_ways() -> None:
    a = np.arange(6.0)
    t = tw.from_numpy(a)
    a[0] = 10
    assert t[0].item() == 10
    t[1] = 20
    assert a[1] == 20
    t.view(2, 3)[1] *= -1
    assert a.tolist() == [10, 20, 2, -3, -4, -5]
    v = t[::2]
    a[2] = 7
    assert v.tolist() == [10, 7, -4]


def test_an_op_reads_its_input_as_it_was_at_the_call() -> None:
    batch = np.zeros(3)
    t = tw.from_numpy(batch)
    results = []
    for i in range(4):
        batch[:] = i
        results.append(t * 2)
    assert [r.tolist() for r in results] == [[2.0 * i] * 3 for i in range(4)]


def test_views_of_arrays_in_any_layout(torch: Any) -> None:
    base = np.arange(24.0).reshape(4, 6)
    for view in (base[::2], base[:, ::3], base.T, base[1:3, 2:5].T, base[:, 0], base[0], base[:0]):
        ours, theirs = tw.from_numpy(view), torch.from_numpy(view)
        agree(ours * 1, theirs * 1)
        agree(ours.reshape(-1), theirs.reshape(-1))
        if view.size:
            agree(ours[0], theirs[0])
            ours[0] = -5.0
            assert (np.asarray(view[0]) == -5).all()
            view[0] = 3.0
            agree(ours, theirs)


def test_numpy_shares_both_ways() -> None:
    t = tw.zeros(2, 3) + 1
    a = t.numpy()
    t[0, 0] = 5
    assert a[0, 0] == 5
    a[1, 1] = 7
    assert t[1, 1].item() == 7 and (t * 2)[1, 1].item() == 14
    b = t.t()[1:].numpy()
    b[:] = 0
    assert a.tolist() == [[5, 0, 0], [1, 0, 0]]
    assert np.shares_memory(a, b) and np.shares_memory(a, t.numpy())


@pytest.mark.usefixtures("fused")
def test_a_large_result_goes_to_numpy_without_a_copy() -> None:
    x, seen = tw.arange(1 << 15).float(), []
    for i in range(12):  # more than the device keeps to use again
        y = x.view(2, -1) * 3 + i
        y.sum().item()
        address = y._buffer.ctypes.data
        seen.append(y.numpy())
        assert seen[-1].ctypes.data == address
        del y
    for i, array in enumerate(seen):
        np.testing.assert_array_equal(array.ravel(), np.arange(1 << 15) * 3.0 + i)


def test_twins_do_not_share_an_exported_buffer() -> None:
    x = tw.arange(3.0)
    y, z = x + 1, x + 1
    s = z.clone()
    y.tolist()
    y.numpy()[0] = 100
    assert z.tolist() == [1, 2, 3] and s.tolist() == [1, 2, 3] and y.tolist() == [100, 2, 3]
    c = x.clone()
    c.numpy()[:] = 0
    assert x.tolist() == [0, 1, 2]


def test_values_saved_for_backward_are_not_exported() -> None:
    w = tw.ones(2, requires_grad=True)
    x = w.exp()
    loss = (x * x).sum()
    loss.item()
    x.detach().numpy()[:] = 0
    loss.backward()
    assert np.allclose(w.grad.numpy(), 2 * np.exp(2))


def test_many_exports_of_one_tensor() -> None:
    t = tw.zeros(3)
    for i in range(3000):
        a = t.numpy()
        a[0] = i
    assert t[0].item() == 2999
    del a
    gc.collect()
    assert (t + 1).tolist() == [3000, 1, 1]


def test_memory_is_free_again_when_the_arrays_are_gone() -> None:
    t = tw.zeros(3)
    a = t.numpy()
    t += 1
    assert (t._storage or t)._shared is not None
    del a
    gc.collect()
    t += 1
    t.sum()
    assert (t._storage or t)._shared is None
    assert t.tolist() == [2, 2, 2]


def test_asarray_shares_and_array_copies() -> None:
    t = tw.arange(3.0) + 0
    a, b = np.asarray(t), np.array(t)
    t[0] = 9
    assert a[0] == 9 and b[0] == 0
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    assert np.add(t, 1).tolist() == [10, 2, 3]
    assert np.array(tw.tensor(3.5)) == 3.5


def test_0d_arrays() -> None:
    a = np.array(3.0)
    t = tw.from_numpy(a)
    assert t.shape == () and (t * 2).shape == () and (t * 2).item() == 6
    a[...] = 4
    assert t.item() == 4
    del a
    assert (t + 1).shape == () and (t + 1).item() == 5


def test_readonly_and_foreign_arrays() -> None:
    with pytest.raises(ValueError, match="byte order"):
        tw.from_numpy(np.zeros(2, ">f4" if np.little_endian else "<f4"))
    with pytest.raises(ValueError, match="negative"):
        tw.from_numpy(np.zeros(2)[::-1])
    with pytest.raises(TypeError):
        tw.from_numpy([1, 2])
    with pytest.raises(TypeError):
        tw.from_numpy(np.array(["a"]))


def test_requires_grad_on_shared_memory() -> None:
    a = np.ones(3)
    w = tw.from_numpy(a).requires_grad_()
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
    with tw.no_grad():
        w -= 0.5 * w.grad
    assert a.tolist() == [0, 0, 0]
    x = tw.from_numpy(np.ones(3))
    x.mul_(w + 2)
    x.sum().backward()
    assert w.grad.tolist() == [3, 3, 3]


# ---- DLPack, resizing, copies ----------------------------------------------------------------


def test_dlpack_both_ways(torch: Any) -> None:
    t = tw.arange(4.0) + 0
    a = np.from_dlpack(t)
    t[0] = 8
    assert a[0] == 8
    theirs = torch.from_dlpack(t)
    theirs[1] = 9
    assert t[1].item() == 9
    source = torch.arange(3.0)
    ours = tw.from_dlpack(source)
    ours[0] = 5
    source[2] = 6
    assert source[0].item() == 5 and ours.tolist() == [5, 1, 6]
    b = np.arange(3)
    tw.from_dlpack(b)[0] = 4
    assert b[0] == 4
    with pytest.raises(BufferError):
        tw.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(TypeError):
        tw.from_dlpack([1])


def test_resize(torch: Any) -> None:
    for m in (tw, torch):
        x = m.arange(6.0)
        assert x.resize_(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert x.resize_(2).tolist() == [0, 1]


def test_copies_keep_sharing(torch: Any) -> None:
    for m in (tw, torch):
        x = m.arange(4.0)
        pair = copy.deepcopy([x, x[1:], x])
        pair[0][2] = 50
        assert pair[1].tolist() == [1, 50, 3] and pair[2] is pair[0]
        assert x.tolist() == [0, 1, 2, 3]
    x = tw.arange(4.0)
    a, b = pickle.loads(pickle.dumps((x, x.view(2, 2)[1])))
    a[3] = -1
    assert b.tolist() == [2, -1]


def test_copies_of_leaves() -> None:
    w = tw.ones(2, requires_grad=True)
    (w * 2).sum().backward()
    c = copy.deepcopy(w)
    assert c.requires_grad and c.is_leaf and c.grad.tolist() == [2, 2] and c.grad is not w.grad
    with tw.no_grad():
        c.mul_(5)
    assert w.tolist() == [1, 1]
    p = pickle.loads(pickle.dumps(w))
    assert p.requires_grad and p.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(w * 2)
    for dtype in (tw.bfloat16, tw.bool, tw.uint8):
        t = tw.ones(2, dtype=dtype)
        back = pickle.loads(pickle.dumps(t))
        assert back.dtype is dtype and back.tolist() == t.tolist()


def test_pickles_of_views_are_small_enough_to_load_elsewhere(
    run_python: Any, tmp_path: Any
) -> None:
    path = tmp_path / "t.pkl"
    with open(path, "wb") as file:
        pickle.dump({"x": tw.arange(6.0).reshape(2, 3).t()[1]}, file)
    out = run_python(
        "import pickle, sys, tilewright\nprint(pickle.load(open(sys.argv[1], 'rb'))['x'].tolist())",
        str(path),
    )
    assert out.strip() == "[1.0, 4.0]"
    assert io.BytesIO is not None


def test_rows_of_memory_that_numpy_sees_are_picked_at_the_call() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    data, before = tw.from_numpy(array), array.copy()
    order, mask = np.array([3, -1, 0]), np.array([True, False, True])
    cases = [
        (data[tw.from_numpy(order)], before[order]),
        (data.index_select(1, tw.tensor([2, 0])), before[:, [2, 0]]),
        (data[:, tw.tensor([[1, 2], [0, 0]])], before[:, [[1, 2], [0, 0]]]),
        (data[1:, mask, 1], before[1:, mask, 1]),
        (data[[0, 2], :, [1, 0]], before[[0, 2], :, [1, 0]]),
        (data.transpose(0, 2)[tw.tensor([1])], before.transpose(2, 1, 0)[[1]]),
        (data[tw.tensor([], dtype=tw.int64)], before[:0]),
        (data[tw.tensor([1], dtype=tw.int32)], before[[1]]),
    ]
    assert all(t._node is None for t, _ in cases)  # nothing was recorded, nor copied as a whole
    array[:] = -1
    for t, expected in cases:
        np.testing.assert_array_equal(t.numpy(), expected)
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 1 with size 3"):
        data[:, tw.tensor([0, 4])]
    with pytest.raises(IndexError, match="must be long, int, byte or bool"):
        data[tw.tensor([0.5])]
    data.requires_grad_()
    data[tw.tensor([1, 1])].sum().backward()
    assert data.grad.sum().item() == 12

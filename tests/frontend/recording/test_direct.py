"""Known calls on tensors at rest, which take one look at their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as torch
from tilewright import recording
from tilewright.recording import direct, epoch, novelty
from tilewright.recording.epoch import clock

CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "x + y": (lambda x, y: x + y, lambda x, y: x + y),
    "y - x": (lambda x, y: y - x, lambda x, y: y - x),
    "x > y": (lambda x, y: x > y, lambda x, y: x > y),
    "maximum": (torch.maximum, np.maximum),
    "x * 2.5": (lambda x, y: x * 2.5, lambda x, y: x * np.float32(2.5)),
    "1 - x": (lambda x, y: 1 - x, lambda x, y: np.float32(1) - x),
    "x >= 0": (lambda x, y: x >= 0, lambda x, y: x >= 0),
    "neg": (lambda x, y: -x, lambda x, y: -x),
    "abs": (lambda x, y: x.abs(), lambda x, y: abs(x)),
    "clone": (lambda x, y: x.clone(), lambda x, y: x),
    "clamp": (lambda x, y: x.clamp(-0.5, 0.5), lambda x, y: np.clip(x, -0.5, 0.5)),
    "relu": (lambda x, y: x.relu(), lambda x, y: np.where(x < 0, np.float32(0), x)),
    "amax": (lambda x, y: x.amax(-1), lambda x, y: x.max(-1)),
    "sum": (lambda x, y: x.sum(-1), lambda x, y: x.astype(np.float64).sum(-1)),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls are computed at once, whatever work comes again."""
    epoch.families.clear()
    epoch.known.clear()
    monkeypatch.setattr(novelty, "REPEATS", 1 << 60)
    monkeypatch.setattr(clock, "volatile", True)
    yield


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that took the short way."""
    seen: list[Any] = []
    make = direct._made

    def noted(known: Any, *arrays: Any) -> Any:
        seen.append(known)
        return make(known, *arrays)

    monkeypatch.setattr(direct, "_made", noted)
    return seen


def drawn(seed: int, *shape: int) -> Any:
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    if values.size:
        values.flat[::7] = np.nan
        values.flat[::5] = np.inf
        values.flat[::3] = -0.0
    return values


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "own memory": lambda a: torch.tensor(a),
    "of NumPy": lambda a: torch.from_numpy(a.copy()),
    "transposed": lambda a: torch.tensor(a.T.copy()).t(),
    "part": lambda a: torch.tensor(np.concatenate([a, a], 1))[:, : a.shape[1]],
    "detached": lambda a: torch.tensor(a).requires_grad_().detach(),
    "with a view": lambda a: (t := torch.tensor(a), t.view(-1))[0],
    "parameter": lambda a: torch.nn.Parameter(torch.tensor(a), requires_grad=False),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(3, 5), (40, 30), (1, 1), (0, 4)])
def test_values(name: str, form: str, shape: tuple[int, int]) -> None:
    if name == "amax" and 0 in shape[1:]:
        return
    ours, theirs = CALLS[name]
    a, b = drawn(1, *shape), drawn(2, *shape)
    with np.errstate(all="ignore"):
        wanted = theirs(a, b)
    for _ in range(5):
        x, y = FORMS[form](a), FORMS[form](b)
        for _ in range(3):
            found = ours(x, y).numpy()
            np.testing.assert_allclose(found, wanted, 1e-5)
            if name != "sum":
                assert np.array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("clone", "sum")])
def test_repeated_calls_take_the_short_way(name: str, made: list[Any]) -> None:
    x, y = torch.tensor(drawn(1, 8, 9)), torch.tensor(drawn(2, 8, 9))
    for _ in range(40):
        CALLS[name][0](x, y)
    assert len(made) > 10


@pytest.mark.parametrize("name", CALLS)
def test_new_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a size that comes for the first time is made by what its family has."""
    found: list[Any] = []
    first = direct.first

    def noted(*args: Any) -> Any:
        found.append(first(*args))
        return found[-1]

    monkeypatch.setattr(direct, "first", noted)
    ours, expected = CALLS[name]
    for n in (3, 5, 6, 9, 12, 12, 12):
        x, y = drawn(n, n, 7), drawn(n + 1, n, 7)
        made = ours(torch.tensor(x), torch.tensor(y))
        with np.errstate(invalid="ignore"):
            values = expected(x, y)
        np.testing.assert_allclose(made.numpy(), values, rtol=1e-6, atol=1e-6)
    assert any(each is not None for each in found[-4:])


def test_new_sizes_within_what_is_known() -> None:
    """What a template was learned of one vocabulary doesn't hold for another one."""
    for vocabulary in (11, 11, 11, 5, 7, 11):
        rows = torch.arange(float(vocabulary)).reshape(-1, 1)
        for n in (2, 3, 4):
            words = torch.arange(n) + vocabulary - n
            assert torch.embedding(rows, words).flatten().tolist() == words.tolist()
            with pytest.raises(IndexError, match="out of range"):
                torch.embedding(rows, words + 1).sum().item()


def test_reshaped_copies() -> None:
    for n in (2, 3, 4, 4):
        x = drawn(n, n, 3, 4)
        t = torch.tensor(x)
        made = t.transpose(1, 2).reshape(n, -1)
        assert made.is_contiguous() and not made._is_view()
        np.testing.assert_array_equal(made.numpy(), x.transpose(0, 2, 1).reshape(n, -1))
        made.fill_(0.0)
        np.testing.assert_array_equal(t.numpy(), x)
    w = torch.ones(2, 3, requires_grad=True)
    (w.t().reshape(-1) * torch.arange(6.0)).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_memory_that_numpy_sees_is_read_as_it_is_now(made: list[Any]) -> None:
    array = np.zeros(6, np.float32)
    x = torch.from_numpy(array)
    results = []
    for i in range(30):
        array[:] = i
        results.append(x + x)
    assert len(made) > 10
    for i, each in enumerate(results):
        assert each.tolist() == [2.0 * i] * 6


def test_results_share_no_memory() -> None:
    x = torch.tensor(drawn(1, 4, 5))
    for call in (lambda: x.clone(), lambda: x + 0, lambda: x.clamp(-9, 9), lambda: x.t().clone()):
        for _ in range(30):
            before = x.numpy().copy()
            call().fill_(7)
            np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize("value", [3, -7, 0, 2.5, -0.0, float("nan"), float("inf"), 1e300, 1e-300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int16, np.bool_])
def test_numbers(value: float, dtype: Any) -> None:
    theirs = pytest.importorskip("torch")
    array = np.array([[1, 0, 3]]).astype(dtype)
    calls: list[Callable[[Any], Any]] = [
        lambda x: x * value, lambda x: value - x, lambda x: x > value, lambda x: value / (x + 1),
    ]  # fmt: skip
    for call in calls:
        if dtype == np.bool_ and call is calls[1]:
            continue  # refused
        wanted = call(theirs.tensor(array))
        x = torch.tensor(array)
        for _ in range(6):
            found = call(x)
            assert str(found.dtype) == str(wanted.dtype)
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-6)
            assert np.array_equal(np.signbit(found.numpy()), np.signbit(wanted.numpy()))


def test_a_number_that_the_dtype_has_not() -> None:
    theirs = pytest.importorskip("torch")
    x, y = torch.tensor([1, 200], dtype=torch.uint8), theirs.tensor([1, 200], dtype=theirs.uint8)
    for _ in range(6):
        assert (x + 100).tolist() == (y + 100).tolist()
        assert (x + 300).tolist() == (y + 300).tolist()
        assert (x * -1).tolist() == (y * -1).tolist()


def test_gradients_flow_where_an_operand_begins_to_need_them(made: list[Any]) -> None:
    x, y = torch.tensor(drawn(1, 3, 3)), torch.ones(3, 3)
    for _ in range(30):
        x * y
    assert made
    y.requires_grad_()
    for _ in range(6):
        y.grad = None
        (x * y).nansum().backward()
        assert y.grad is not None
    with torch.no_grad():
        known = len(made)
        for _ in range(6):
            assert not (x * y).requires_grad
        assert len(made) > known
    (y.detach() * y).sum().backward()
    z = y * 2
    for _ in range(6):
        assert (z * x).requires_grad and (z.view(9) * 3).requires_grad
        assert not (z.detach() * x).requires_grad


def test_modes_that_see_calls() -> None:
    from tilewright.utils.flop_counter import FlopCounterMode

    a, b = torch.tensor(drawn(1, 8, 8)), torch.tensor(drawn(2, 8, 8))
    for _ in range(30):
        a @ b
        a + b
    with torch.autocast("cpu", torch.bfloat16):
        assert (a @ b).dtype is torch.bfloat16
    assert (a @ b).dtype is torch.float32
    with FlopCounterMode(display=False) as counter:
        a @ b
    assert counter.get_total_flops() == 2 * 8**3
    packed: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        torch.ones(8, 8, requires_grad=True) * a
    assert len(packed) >= 1


def test_inference_mode() -> None:
    x = torch.tensor(drawn(1, 3, 3))
    for _ in range(30):
        x + x
    with torch.inference_mode():
        made = x + x
        assert made.is_inference() and (made * 2.0).is_inference()
    for _ in range(6):
        assert not (made * x).is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (made * torch.ones(3, 3, requires_grad=True)).sum().backward()


def test_assignments_to_data_record_nothing() -> None:
    recording.flush()
    p = torch.nn.Parameter(torch.ones(4))
    wanted = np.ones(4)
    for _ in range(30):
        p.data = p.data * 0.5 + 0.25
        p.data = p.detach() + 1
        wanted = wanted * 0.5 + 1.25
    assert p._node is None and not epoch.handles
    (p * p).sum().backward()
    np.testing.assert_allclose(p.detach().numpy(), wanted, 1e-6)
    assert p.grad is not None
    np.testing.assert_allclose(p.grad.numpy(), 2 * wanted, 1e-6)

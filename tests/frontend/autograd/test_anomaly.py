"""Anomaly mode, hooks on several gradients, and autograd's older names, against PyTorch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    yield
    tw.set_anomaly_enabled(False)


def in_another_epoch(t: Any, x: Any) -> Any:
    y = x.sqrt()
    float(y.detach().sum())
    return y * 0


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt": lambda t, x: x.sqrt() * 0,
    "another epoch": in_another_epoch,
    "product": lambda t, x: x.log() * 0 * x.sqrt(),
    "division": lambda t, x: x / x,
    "fine": lambda t, x: (x * 2).exp(),
    "a NaN that comes from nothing": lambda t, x: (x + 1) * float("nan"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("by_grad", [False, True])
def test_who_made_a_nan(torch: Any, name: str, by_grad: bool) -> None:
    told = []
    for t in (tw, torch):
        x = t.tensor([0.0, 1.0], requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with t.autograd.detect_anomaly():
                assert t.is_anomaly_enabled() and t.is_anomaly_check_nan_enabled()
                y = CALLS[name](t, x).sum()
                try:
                    if by_grad:
                        t.autograd.grad(y, x)
                    else:
                        y.backward()
                    told.append(None)
                except RuntimeError as error:
                    found = re.match(r"Function '(\w+)' .*returned nan values", str(error))
                    assert found is not None
                    told.append(found[1])
        assert not t.is_anomaly_enabled()
    assert told[0] == told[1]


def test_the_line_is_named() -> None:
    tw.autograd.set_detect_anomaly(True)
    x = tw.zeros(2, requires_grad=True)
    y = x.sqrt()
    with pytest.raises(RuntimeError, match=r"SqrtBackward0' \(recorded at .*test_anomaly.py:\d+\)"):
        (y * 0).sum().backward()
    assert x.grad is None
    with tw.autograd.set_detect_anomaly(True, check_nan=False):
        (x.sqrt() * 0).sum().backward()
    assert np.isnan(x.grad.numpy()).all()
    assert tw.is_anomaly_enabled()
    tw.autograd.set_detect_anomaly(False)
    (x.sqrt() * 0).sum().backward()
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        tw.autograd.detect_anomaly()


def test_gradients_are_the_same_in_anomaly_mode() -> None:
    rng = np.random.default_rng(0)
    model = tw.nn.Sequential(tw.nn.Linear(4, 5), tw.nn.GELU(), tw.nn.LayerNorm(5))
    x = tw.tensor(rng.normal(size=(3, 4)).astype(np.float32))
    found = []
    for mode in (False, True):
        model.zero_grad()
        with tw.autograd.set_detect_anomaly(mode):
            model(x).square().sum().backward()
        found.append([p.grad.numpy().copy() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_several_gradients(torch: Any, mode: str) -> None:
    logs = []
    for t in (tw, torch):
        register = __import__(
            f"{t.__name__}.autograd.graph", fromlist=["g"]
        ).register_multi_grad_hook
        a, b, c = (t.ones(2, requires_grad=True) for _ in range(3))
        d = a * 5
        log: list[Any] = []

        def see(found: Any, log: list[Any] = log) -> None:
            if mode == "any":
                log.append("one")
            else:
                log.append([None if g is None else g.tolist() for g in found])

        handle = register((d, b, c), see, mode=mode)
        loss = (d * 2 + b * 3).sum()
        loss.backward(retain_graph=True)
        (d * 2 + b * 3 + c).sum().backward()
        a.sum().backward()  # reaches none of them
        handle.remove()
        (b * 3).sum().backward()
        logs.append(log)
    assert logs[0] == logs[1]


def test_a_pass_that_fails_calls_no_hook() -> None:
    a, b = (tw.ones(2, requires_grad=True) for _ in range(2))
    log: list[Any] = []
    tw.autograd.graph.register_multi_grad_hook((a, b), log.append)

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    handle = a.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        (b * 2 + a).sum().backward()
    handle.remove()
    assert not log
    (b * 2 + a).sum().backward()
    assert [g.tolist() for g in log[0]] == [[1, 1], [2, 2]]
    with pytest.raises(ValueError, match="Expects mode"):
        tw.autograd.graph.register_multi_grad_hook((a,), log.append, mode="some")


def test_older_names() -> None:
    data = tw.ones(2)
    v = tw.autograd.Variable(data, requires_grad=True)
    assert v.is_leaf and v.requires_grad and not data.requires_grad
    assert isinstance(data, tw.autograd.Variable) and not isinstance(1, tw.autograd.Variable)
    data.fill_(3)
    assert v.tolist() == [3, 3]
    with pytest.raises(TypeError, match="has to be a tensor"):
        tw.autograd.Variable(1)
    with tw.autograd.grad_mode.no_grad():
        assert not (v * 2).requires_grad
    w = tw.ones(2, requires_grad=True)
    y = (w * v).sum()
    tw.autograd.graph.increment_version(v)
    tw.autograd.graph.increment_version([v, w])
    assert v._version == 3
    (g,) = tw.autograd.grad((w * 2).sum(), w, only_inputs=True)
    assert g.tolist() == [2, 2]
    del y


def test_user_written_derivatives_are_named() -> None:
    class Spoiled(tw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * float("nan")

    x = tw.ones(3, requires_grad=True)
    with (
        tw.autograd.set_detect_anomaly(True),
        pytest.raises(RuntimeError, match=r"'SpoiledBackward' .* returned nan values in its 0th"),
    ):
        (Spoiled.apply(x * 1) + 1).sum().backward()

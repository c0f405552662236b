"""torch.optim.swa_utils against PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw

RNG = np.random.default_rng(0)
BATCHES = [RNG.normal(size=(6, 4)).astype(np.float32) for _ in range(5)]


def model_of(lib: Any, weights: dict[str, np.ndarray] | None = None) -> Any:
    model = lib.nn.Sequential(lib.nn.Linear(4, 3), lib.nn.BatchNorm1d(3), lib.nn.Linear(3, 2))
    if weights is not None:
        model.load_state_dict({k: lib.tensor(v) for k, v in weights.items()})
    return model


AVERAGES = {
    "mean": lambda u: {},
    "mean of buffers": lambda u: {"use_buffers": True},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "swa": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "multi ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "multi swa": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda a, p, n: (a * n + 2 * p) / (n + 2)},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_models(torch: Any, name: str) -> None:
    weights = {k: v.numpy() for k, v in model_of(torch).state_dict().items()}
    states = []
    for lib in (tw, torch):
        swa = __import__(f"{lib.__name__}.optim.swa_utils", fromlist=["AveragedModel"])
        model = model_of(lib, weights)
        averaged = swa.AveragedModel(model, **AVERAGES[name](swa))
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
        for batch in BATCHES:
            optimizer.zero_grad()
            model(lib.tensor(batch)).square().sum().backward()
            optimizer.step()
            averaged.update_parameters(model)
        assert averaged.n_averaged.item() == 5
        states.append({k: v.numpy() for k, v in averaged.state_dict().items()})
        out = averaged.eval()(lib.tensor(BATCHES[0]))
        states[-1]["out"] = out.detach().numpy()
    ours, theirs = states
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert value.dtype == theirs[key].dtype
        np.testing.assert_allclose(value, theirs[key], rtol=2e-4, atol=1e-5, err_msg=key)


def test_statistics_taken_anew(torch: Any) -> None:
    weights = {k: v.numpy() for k, v in model_of(torch).state_dict().items()}
    found = []
    for lib in (tw, torch):
        swa = __import__(f"{lib.__name__}.optim.swa_utils", fromlist=["update_bn"])
        model = model_of(lib, weights).eval()
        swa.update_bn([(lib.tensor(b), 0) for b in BATCHES], model)
        assert not model.training and model[1].momentum == 0.1
        found.append((model[1].running_mean.numpy(), model[1].running_var.numpy()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 5])
def test_rates(torch: Any, strategy: str, epochs: int) -> None:
    rates: list[list[float]] = []
    for lib in (tw, torch):
        swa = __import__(f"{lib.__name__}.optim.swa_utils", fromlist=["SWALR"])
        p = lib.nn.Parameter(lib.zeros(1))
        optimizer = lib.optim.SGD([p], lr=1.0)
        other = lib.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda _: 0.9)
        schedule = swa.SWALR(optimizer, 0.05, epochs, strategy)
        rates.append([])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(12):
                optimizer.step()
                (schedule if i > 3 else other).step()
                rates[-1].append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-9)


def test_errors() -> None:
    from tilewright.optim import swa_utils

    with pytest.raises(AssertionError, match="Only one of"):
        swa_utils.AveragedModel(tw.nn.Linear(1, 1), avg_fn=lambda *_: _, multi_avg_fn=lambda *_: _)
    with pytest.raises(ValueError, match="Invalid decay value"):
        swa_utils.get_ema_multi_avg_fn(1.5)
    optimizer = tw.optim.SGD([tw.nn.Parameter(tw.zeros(1))], lr=1)
    with pytest.raises(ValueError, match="anneal_strategy"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="no")
    with pytest.raises(ValueError, match="anneal_epochs"):
        swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)

"""Functions and classes take the arguments of PyTorch's by the same names."""

from __future__ import annotations

import importlib
import inspect
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import tilewright as tw

MODULES = (
    "nn nn.functional nn.init nn.utils nn.utils.prune nn.utils.rnn nn.attention nn.parallel optim "
    "optim.lr_scheduler optim.swa_utils linalg special autograd autograd.functional "
    "autograd.forward_ad func distributions utils.data utils.checkpoint amp random sparse nested "
    "distributed profiler library compiler serialization testing overrides hub futures"
).split()

OTHER_NAMES = {
    "profiler.tensorboard_trace_handler": "there is one writer of traces",
    "library.CustomOpDef": "`custom_op` makes it",
    "utils.checkpoint.SelectiveCheckpointContext": "PyTorch makes it, and hands it to policies",
}
"""Names that take other arguments, and why."""


def arguments(function: Any) -> dict[str, inspect.Parameter]:
    if inspect.isclass(function):
        function = function.__init__
    return dict(inspect.signature(function).parameters)


def missing(ours: Any, theirs: Any) -> list[str]:
    """The names of PyTorch's arguments that our function doesn't take."""
    try:
        mine, yours = arguments(ours), arguments(theirs)
    except (TypeError, ValueError):  # written in C++
        return []
    if any(p.kind is p.VAR_KEYWORD for p in mine.values()):
        return []
    bare = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    by_name = [n for n, p in yours.items() if p.kind not in (*bare, p.POSITIONAL_ONLY)]
    return [n for n in by_name if n not in mine and n != "self" and not n.startswith("_")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", MODULES)
def test_arguments_have_pytorchs_names(torch: Any, path: str) -> None:
    ours, theirs = (importlib.import_module(f"{m.__name__}.{path}") for m in (tw, torch))
    found = {}
    for name, value in vars(theirs).items():
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        if hasattr(ours, name) and f"{path}.{name}" not in OTHER_NAMES:
            found[name] = missing(getattr(ours, name), value)
    assert {name: names for name, names in found.items() if names} == {}


CALLS: dict[str, Any] = {
    "split by its other names": lambda m: m.split(tensor=x(m), split_size_or_sections=2)[0],
    "Tensor.split": lambda m: x(m).split(split_size=2, dim=1)[1],
    "mse_loss": lambda m: m.nn.functional.mse_loss(x(m), x(m) * 3, weight=x(m).abs()),
    "l1_loss": lambda m: m.nn.functional.l1_loss(x(m), x(m) * 3, weight=x(m).abs()),
    "l1_loss, sum": lambda m: m.nn.functional.l1_loss(x(m), x(m) * 3, weight=x(m), reduction="sum"),
    "huber_loss": lambda m: m.nn.functional.huber_loss(x(m), x(m) * 3, weight=x(m)),
    "icdf": lambda m: m.distributions.HalfNormal(m.ones(1)).icdf(prob=m.tensor([0.3])),
    "modules": lambda m: m.tensor(len(list(twice(m).modules(remove_duplicate=False)))),
    "pop": lambda m: m.tensor(len(twice(m)) - (twice(m).pop(key=0) is None)),
}


def x(m: Any) -> Any:
    return m.tensor(np.random.default_rng(0).standard_normal((4, 3)).astype("f"))


def twice(m: Any) -> Any:
    layer = m.nn.ReLU()
    return m.nn.Sequential(layer, layer)


@pytest.mark.parametrize("name", CALLS)
def test_calls_by_these_names(torch: Any, name: str) -> None:
    ours, theirs = (CALLS[name](m) for m in (tw, torch))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_have_the_shape_of_the_input(torch: Any, loss: str) -> None:
    for m in (tw, torch):
        with pytest.raises(ValueError, match="must have the same size"):
            getattr(m.nn.functional, loss)(x(m), x(m), weight=m.ones(3))


def test_hardtanh_by_its_older_names(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.warns(FutureWarning, match="`max_value` is deprecated and renamed"):
            layer = m.nn.Hardtanh(-2, max_value=3)
        assert (layer.min_val, layer.max_val) == (-2, 3)


def test_a_function_is_not_compiled_for_a_reason() -> None:
    @tw.compiler.disable(reason="it prints")
    def printed(value: Any) -> Any:
        return value + 1

    step = tw.compile(lambda value: printed(value) * 2, fullgraph=True, name="step")
    with pytest.raises(RuntimeError, match=r"printed\(\) is not to be compiled: it prints"):
        step(tw.ones(2))


def test_the_first_wait_of_a_schedule_is_skipped(torch: Any) -> None:
    for wait, first in (2, 1), (2, 0), (3, 2):
        found = []
        for m in (tw, torch):
            action = m.profiler.schedule(
                wait=wait, warmup=1, active=1, repeat=2, skip_first=1, skip_first_wait=first
            )
            found.append([action(step).name for step in range(14)])
        assert found[0] == found[1]


def test_a_barrier_with_a_limit_of_its_own() -> None:
    tw.distributed.init_process_group(
        "gloo", store=tw.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        assert tw.distributed.barrier(timeout=timedelta(seconds=5)) is None
        group = tw.distributed.new_group([0], sort_ranks=False)
        tw.distributed.monitored_barrier(group, timeout=timedelta(seconds=5))
    finally:
        tw.distributed.destroy_process_group()

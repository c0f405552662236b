"""PyTorch's database of optimizers: every optimizer with each of its sets of options."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from databases import entries

import tilewright as tw

pytestmark = pytest.mark.torch
_INFO = {each.optim_cls.__name__: each for each in entries("common_optimizers", "optim_db")}
NAMES = (
    "Adadelta Adafactor Adagrad Adam Adamax AdamW ASGD LBFGS Muon NAdam RAdam RMSprop Rprop SGD "
    "SparseAdam"
).split()
# Muon iterates in bfloat16. PyTorch keeps ASGD's and NAdam's factors in float32.
TOLERANCES = {"Muon": 4e-2, "ASGD": 2e-8, "NAdam": 1e-9}
# Line searches choose other points within the same conditions.
SEARCHES = {"line_search_fn"}


def ours(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """A value of PyTorch's database, made of our tensors; the same tensor becomes one."""
    seen = {} if seen is None else seen
    if isinstance(value, dict):
        return {k: ours(v, seen) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(ours(v, seen) for v in value)
    if not hasattr(value, "detach"):
        return value
    if id(value) not in seen:
        if value.is_sparse:
            return tw.sparse_coo_tensor(tuple(value.shape))
        made = tw.tensor(value.detach().numpy().copy(), requires_grad=value.requires_grad)
        seen[id(value)] = made if value.is_leaf else made * 1
    return seen[id(value)]


def steps(lib: Any, kind: Any, options: dict[str, Any], name: str) -> Iterator[Any]:
    """The parameters after each of three steps, then the names of states and groups."""
    draw = np.random.default_rng(0)
    shapes = [(3, 4)] if name == "Muon" else [(3, 4), (5,), ()]
    params = [lib.nn.Parameter(lib.tensor(draw.standard_normal(s))) for s in shapes]
    targets = [lib.tensor(draw.standard_normal(s)) for s in shapes]
    if name == "LBFGS":
        options["max_iter"] = 2  # an iteration reads values, so each one is a graph
    optimizer = kind(params, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2).sum() for p, t in zip(params, targets, strict=True))
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
        yield [p.detach().numpy().copy() for p in params]
    state = optimizer.state_dict()
    yield {n: sorted(map(str, s)) for n, s in state["state"].items()}
    yield [sorted(group) for group in state["param_groups"]]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "SparseAdam"])
def test_every_set_of_options(torch: Any, name: str) -> None:
    info = _INFO[name]
    for each in info.optim_inputs_func(device="cpu"):
        if SEARCHES & each.kwargs.keys():
            continue
        theirs = list(steps(torch, info.optim_cls, dict(each.kwargs), name))
        made = list(steps(tw, getattr(tw.optim, name), ours(dict(each.kwargs)), name))
        assert made[3:] == theirs[3:], each
        tolerance = TOLERANCES.get(name, 1e-11)
        for a, b in zip(made[:3], theirs[:3], strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_allclose(x, y, tolerance, tolerance, err_msg=str(each))


def test_the_names_are_the_databases(torch: Any) -> None:
    assert set(_INFO) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_errors(torch: Any, name: str) -> None:
    info = _INFO[name]
    for each in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = each.optimizer_error_input
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(each.error_type) as raised:
                optimizer = getattr(tw.optim, name)(ours(given.params), **ours(given.kwargs))
                for p in optimizer.param_groups[0]["params"]:
                    p.grad = p.detach().clone()
                optimizer.step()
        assert re.search(each.error_regex, str(raised.value)), given.desc

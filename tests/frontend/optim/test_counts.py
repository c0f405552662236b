"""The count of steps in an optimizer's states: a tensor, as in PyTorch."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest

import tilewright as tw

COUNTING = "Adam AdamW ASGD NAdam RAdam RMSprop Rprop Adamax Adadelta Adagrad Adafactor".split()


def make(T: Any, name: str, steps: int = 0) -> tuple[Any, Any]:
    """(optimizer, its parameter) after some steps."""
    w = T.nn.Parameter(T.tensor(np.arange(6, dtype=np.float32).reshape(3, 2)))
    optimizer = getattr(T.optim, name)([w])
    for _ in range(steps):
        advance(T, optimizer, w)
    return optimizer, w


def advance(T: Any, optimizer: Any, w: Any) -> None:
    w.grad = T.ones_like(w)
    optimizer.step()


@pytest.mark.parametrize("name", COUNTING)
def test_what_a_program_reads_and_writes(torch: Any, name: str) -> None:
    def run(T: Any) -> list[Any]:
        optimizer, w = make(T, name, 2)
        state = optimizer.state[w]
        found = ["step" in state, isinstance(state, dict), state["step"], state["step"].dtype]
        count = state["step"]
        found.append(state.get("step") is count and dict(state)["step"] is count)
        advance(T, optimizer, w)
        found.append(count.clone())
        count.fill_(7)
        advance(T, optimizer, w)
        found.append(state["step"].clone())
        state["step"] += 1
        advance(T, optimizer, w)
        found.append(optimizer.state_dict()["state"][0]["step"])
        (state,) = copy.deepcopy(optimizer).state.values()
        found.append(state["step"])
        found.append(w.detach().numpy().round(4).tolist())
        return [str(each) for each in found]

    assert run(tw) == run(torch)


@pytest.mark.parametrize("name", COUNTING)
def test_saved_states_go_both_ways(torch: Any, name: str) -> None:
    """Steps here, saved, loaded there, a step there: as if all were made in one place."""

    def there_and_back(A: Any, B: Any) -> Any:
        optimizer, w = make(A, name, 3)
        file = io.BytesIO()
        A.save({"optimizer": optimizer.state_dict(), "w": w.detach()}, file)
        saved = B.load(io.BytesIO(file.getvalue()))
        other, v = make(B, name)
        v.data.copy_(saved["w"])
        other.load_state_dict(saved["optimizer"])
        advance(B, other, v)
        return v.detach().numpy(), float(other.state[v]["step"])

    expected, count = there_and_back(torch, torch)
    for pair in ((tw, torch), (torch, tw), (tw, tw)):
        found, own = there_and_back(*pair)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert own == count == 4


def test_a_state_that_nobody_looks_at_has_no_tensor() -> None:
    optimizer, w = make(tw, "Adam", 2)
    state = optimizer.state[w]
    assert state["exp_avg"].shape == w.shape and dict.get(state, "step") is None
    assert "step" in state and len(state) == 3  # neither of which looks
    assert dict.get(state, "step") is None
    assert [*state] == ["step", "exp_avg", "exp_avg_sq"]
    assert isinstance(dict.get(state, "step"), tw.Tensor)


def test_states_of_other_classes_are_left_as_they_are(torch: Any) -> None:
    """An optimizer of the user's counts as it likes, and its counts are saved and loaded so."""

    def run(T: Any) -> Any:
        class Counting(T.optim.Optimizer):
            def step(self) -> None:
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        state["step"] = state.get("step", 0) + 1
                        p.data.add_(p.grad, alpha=-0.1 / state["step"])

        w = T.nn.Parameter(T.ones(2))
        optimizer = Counting([w], {})
        advance(T, optimizer, w)
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        advance(T, optimizer, w)
        return saved["state"], optimizer.state[w]["step"], w.detach().numpy().round(5).tolist()

    assert run(tw) == run(torch)


def test_sparse_adam_counts_by_a_number(torch: Any) -> None:
    def run(T: Any) -> Any:
        layer = T.nn.Embedding(4, 2, sparse=True)
        optimizer = T.optim.SparseAdam(layer.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            layer(T.tensor([1, 2])).sum().backward()
            optimizer.step()
        (state,) = optimizer.state.values()
        return state["step"], type(state), optimizer.state_dict()["state"][0]["step"]

    assert run(tw) == run(torch)

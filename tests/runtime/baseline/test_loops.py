"""Loops of the baseline tier: the step is compiled when it has run often, for all lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import tiers
from tilewright.runtime.baseline import program, recurrences


@pytest.mark.computes
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_lengths_share_a_compiled_step(kind: str, monkeypatch: Any) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(tiers, "mode", tiers.AUTO)
    for name, value in (("OFTEN", 30), ("GRAPH", 0), ("PRODUCT", 0), ("COMPILER", 0)):
        monkeypatch.setattr(tiers, name, value)
    monkeypatch.setattr(recurrences, "form_of", lambda node: None)  # as for halves
    program.clear()
    tw.manual_seed(0)
    ours = getattr(tw.nn, kind)(3, 5, bidirectional=True)
    theirs = getattr(torch.nn, kind)(3, 5, bidirectional=True)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    compiled = []
    for length in (4, 9, 6, 13, 1, 20):
        data = np.random.default_rng(length).standard_normal((length, 2, 3)).astype(np.float32)
        found = []
        for m, model in ((tw, ours), (torch, theirs)):
            x = m.tensor(data, requires_grad=True)
            model.zero_grad()
            y = model(x)[0]
            (y * y).sum().backward()
            grads = [x.grad, *(p.grad for p in model.parameters())]
            found.append([v.detach().numpy() for v in (y, *grads)])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
        compiled.append(sum(s._compiled is not None for s in program._steps.values()))
    assert compiled[0] == 0 < compiled[-1]  # both tiers were seen
    assert len(program._steps) == 4  # forward and back, in both directions, for all lengths

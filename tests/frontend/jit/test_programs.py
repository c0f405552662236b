"""Scripted, traced, exported and symbolically traced models, saved and loaded where their classes
aren't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from saved_models import GRAPHS, MODELS, other

import tilewright as tw
from tilewright.runtime import tiers
from tilewright.utils._pytree import tree_leaves

WAYS = ("script", "trace", "export", "fx")

LOAD = """
import sys
import tilewright as tw
from tilewright.recording import novelty
from tilewright.utils._pytree import tree_leaves

novelty.settle(at_once=False)  # calls are recorded, as in the process that saved
folder = sys.argv[1]
for line in sys.argv[2:]:
    name, way = line.split()
    loader = tw.export.load if way == "export" else tw.jit.load
    model = loader(f"{folder}/{name}.{way}.pt")
    model = model.module() if way == "export" else model
    good = True
    for inputs, wanted in tw.load(f"{folder}/{name}.values.pt"):
        for a, b in zip(tree_leaves(model(*inputs)), tree_leaves(wanted), strict=True):
            same = tw.equal(a, b) if isinstance(a, tw.Tensor) else a == b
            good = good and same
    print(name, way, good)
assert "saved_models" not in sys.modules
"""


class Case(NamedTuple):
    model: Any
    inputs: list[tuple[Any, ...]]
    made: dict[str, Any]


def cases() -> Iterator[tuple[str, Case]]:
    for name, make in MODELS.items():
        tw.manual_seed(3)
        model, inputs = make(tw)
        made = {"script": tw.jit.script(model)}
        if name in GRAPHS:
            made["trace"] = tw.jit.trace(model, inputs)
            (argument,) = [n for n in ("x", "tokens") if n in model.forward.__code__.co_varnames]
            sizes = {0: tw.export.Dim("batch")}
            if name == "transformer":
                sizes[1] = tw.export.Dim("length", max=16)
            made["export"] = tw.export.export(model, inputs, dynamic_shapes={argument: sizes})
        if name in ("resnet",):
            made["fx"] = tw.jit.script(tw.fx.symbolic_trace(model))
        yield name, Case(model, [inputs, other(tw, name)], made)


@pytest.fixture(scope="module")
def known() -> dict[str, Case]:
    with tw.no_grad():
        return dict(cases())


def test_they_are_equal_in_a_fresh_process(
    known: dict[str, Case], tmp_path: Path, run_python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bits of compiled graphs differ, and what is compiled depends on what ran before.
    monkeypatch.setattr(tiers, "mode", tiers.BASELINE)
    lines = []
    for name, case in known.items():
        with tw.no_grad():
            values = [(inputs, case.model(*inputs)) for inputs in case.inputs]
        tw.save(values, tmp_path / f"{name}.values.pt")
        for way, made in case.made.items():
            save = tw.export.save if way == "export" else tw.jit.save
            save(made, str(tmp_path / f"{name}.{way}.pt"))
            lines.append(f"{name} {way}")
    env = {"TW_TIER": tiers.BASELINE}
    found = run_python(LOAD, str(tmp_path), *lines, env=env).split("\n")[:-1]
    assert found == [f"{line} True" for line in lines]


@pytest.mark.parametrize("name", MODELS)
def test_they_compute_what_pytorch_computes(
    torch: Any, known: dict[str, Case], name: str, tmp_path: Path
) -> None:
    """PyTorch reads the weights of the saved program."""
    case = known[name]
    path = str(tmp_path / "program.pt")
    case.made["script"].save(path)
    oracle, _ = MODELS[name](torch)
    oracle.load_state_dict(torch.load(path))
    for inputs in case.inputs:
        with torch.no_grad(), tw.no_grad():
            wanted = tree_leaves(oracle(*(torch.from_numpy(x.numpy()) for x in inputs)))
            for way, made in case.made.items():
                call = made.module() if way == "export" else made
                found = tree_leaves(call(*inputs))
                assert len(found) == len(wanted)
                for a, b in zip(found, wanted, strict=True):
                    if not isinstance(a, tw.Tensor):
                        assert a == b
                        continue
                    torch.testing.assert_close(torch.from_numpy(a.numpy()), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_their_gradients_are_the_models(known: dict[str, Case], name: str) -> None:
    case = known[name]

    def gradients(call: Any, parameters: Any) -> list[Any]:
        total = sum(each.float().sum() for each in tree_leaves(call(*case.inputs[1])))
        return list(tw.autograd.grad(total, parameters, allow_unused=True))

    parameters = list(case.model.parameters())
    wanted = gradients(case.model, parameters)
    for way, made in case.made.items():
        module = made.module() if way == "export" else made
        own = dict(module.named_parameters())
        assert all(own[n] is p for n, p in case.model.named_parameters())
        for a, b in zip(gradients(module, parameters), wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                tw.testing.assert_close(a, b)

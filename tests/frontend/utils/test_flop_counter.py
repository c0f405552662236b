"""torch.utils.flop_counter: operations of products, against PyTorch's counts and formulas."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw


def counts(m: Any, program: Callable[[Any], Any]) -> dict[str, dict[str, int]]:
    counter = importlib.import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode
    m.manual_seed(0)
    with counter(display=False) as mode:
        program(m)
    found = mode.get_flop_counts()
    assert mode.get_total_flops() == sum(found.get("Global", {}).values())
    return {k: {str(op): n for op, n in each.items()} for k, each in found.items()}


def perceptron(m: Any) -> None:
    nn = m.nn
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 3)))
    net(m.randn(2, 5, 8)).sum().backward()


def convolutions(m: Any) -> None:
    nn = m.nn
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.ConvTranspose2d(8, 6, 3))
    net(m.randn(2, 4, 10, 10, requires_grad=True)).sum().backward()


def asked(m: Any) -> None:
    """The gradient of one leaf alone."""
    w, x = m.randn(3, 4, requires_grad=True), m.randn(2, 4, requires_grad=True)
    loss = (m.nn.functional.linear(x, w) @ m.randn(3, 5)).tanh().sum()
    loss.item()
    m.autograd.grad(loss, x)


def twice(m: Any) -> None:
    layer, x = m.nn.Linear(4, 3), m.randn(2, 4)
    for _ in range(2):
        (layer(x) + layer(x)).sum().backward()
    with m.no_grad():
        layer(x)


def penalty(m: Any) -> None:
    w, x = m.randn(3, 4, requires_grad=True), m.randn(4, 5)
    (g,) = m.autograd.grad((w @ x).tanh().sum(), w, create_graph=True)
    g.square().sum()


PROGRAMS: list[Callable[[Any], Any]] = [
    perceptron,
    convolutions,
    asked,
    twice,
    penalty,
    lambda m: m.einsum("bik,bjk->bij", m.randn(2, 3, 4), m.randn(2, 5, 4)),
    lambda m: m.randn(2, 3, 4) @ m.randn(4, 5),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_counts(torch: Any, program: Callable[[Any], Any]) -> None:
    assert counts(tw, program) == counts(torch, program)


def test_attention(torch: Any) -> None:
    """PyTorch counts it on GPUs alone; its formulas hold for all."""
    formulas = importlib.import_module("torch.utils.flop_counter")
    q, k = (2, 3, 5, 4), (2, 3, 7, 4)

    def program(m: Any) -> None:
        args = [m.randn(*size, requires_grad=True) for size in (q, k, k)]
        m.nn.functional.scaled_dot_product_attention(*args).sum().backward()

    name = "aten._scaled_dot_product_flash_attention"
    assert counts(tw, program)["Global"] == {
        name: formulas.sdpa_flop_count(q, k, k),
        f"{name}_backward": formulas.sdpa_backward_flop_count(q, q, k, k),
    }


def test_transformer(torch: Any) -> None:
    """By modules, whether or not values are read on the way; PyTorch leaves out the attention."""

    def program(m: Any, reads: bool) -> None:
        nn = m.nn
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        loss = nn.Sequential(layer, nn.Linear(8, 3))(m.randn(2, 5, 8)).sum()
        if reads:
            loss.item()
        loss.backward()

    def products(found: dict[str, dict[str, int]], module: str) -> int:
        return sum(n for name, n in found[module].items() if "attention" not in name)

    theirs = counts(torch, lambda m: program(m, False))
    for reads in (False, True):
        ours = counts(tw, lambda m, reads=reads: program(m, reads))
        for module in ("Global", "Sequential", "Sequential.0", "Sequential.0.linear1"):
            assert products(ours, module) == products(theirs, module)


def test_loops() -> None:
    """Every step of a recurrent layer counts: four gates for inputs and states."""

    def program(m: Any) -> None:
        with m.no_grad():
            m.nn.LSTM(4, 5)(m.randn(3, 2, 4))

    assert sum(counts(tw, program)["Global"].values()) == 2 * 3 * 2 * 20 * (4 + 5)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    layer = tw.nn.Linear(4, 3)
    with tw.utils.flop_counter.FlopCounterMode() as mode:
        layer(tw.ones(100, 4))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:4]] == [
        ["Global", "2.400K", "100.00%"],
        ["-", "aten.addmm", "2.400K", "100.00%"],
    ]
    assert "Linear" in mode.get_table(1) and "Linear" not in mode.get_table(0)
    with pytest.raises(NotImplementedError, match="no formula is asked"):
        tw.utils.flop_counter.register_flop_formula(tw.ops.aten.mm)

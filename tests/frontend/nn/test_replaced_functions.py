"""Programs that replace functions of nn.functional, as quantizers and profilers do: layers call
what stands there when they run."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright import nn
from tilewright.nn import functional as F

torch = pytest.importorskip("torch")

LAYERS = {
    "relu": (lambda n: n.ReLU(), (2, 4)),
    "hardtanh": (lambda n: n.ReLU6(), (2, 4)),
    "gelu": (lambda n: n.GELU(), (2, 4)),
    "softmax": (lambda n: n.Softmax(-1), (2, 4)),
    "dropout": (lambda n: n.Dropout(0.5), (2, 4)),
    "linear": (lambda n: n.Linear(4, 3), (2, 4)),
    "conv2d": (lambda n: n.Conv2d(4, 2, 3), (1, 4, 5, 5)),
    "conv_transpose1d": (lambda n: n.ConvTranspose1d(4, 2, 3), (1, 4, 5)),
    "max_pool2d": (lambda n: n.MaxPool2d(2), (1, 4, 4, 4)),
    "avg_pool1d": (lambda n: n.AvgPool1d(2), (1, 4, 4)),
    "adaptive_avg_pool2d": (lambda n: n.AdaptiveAvgPool2d(1), (1, 4, 4, 4)),
    "batch_norm": (lambda n: n.BatchNorm1d(4), (2, 4)),
    "layer_norm": (lambda n: n.LayerNorm(4), (2, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_calls_the_function_that_stands_in_its_place(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shape = LAYERS[name]
    for library, layers, functions in ((torch, torch.nn, torch.nn.functional), (tw, nn, F)):
        layer = make(layers)
        monkeypatch.setattr(functions, name, lambda *args, **options: "replaced")
        assert layer(library.ones(shape)) == "replaced"


def test_a_replaced_batch_norm_gets_what_pytorchs_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def spied(original: Any) -> Any:
        def batch_norm(*args: Any) -> Any:
            mean = None if args[1] is None else args[1].tolist()
            seen.append((mean, args[5], float(args[6]), args[7]))
            return original(*args)

        return batch_norm

    for options in ({}, {"momentum": None}, {"track_running_stats": False}):
        found = []
        for library, layers, functions in ((torch, torch.nn, torch.nn.functional), (tw, nn, F)):
            layer = layers.BatchNorm1d(2, **options)
            with monkeypatch.context() as patch:
                patch.setattr(functions, "batch_norm", spied(functions.batch_norm))
                seen.clear()
                x = library.tensor([[1.0, 2.0], [3.0, 5.0], [0.5, -1.0]])
                for _ in range(2):
                    y = layer(x)
                layer.eval()(x)
            buffers = {k: v.tolist() for k, v in layer.named_buffers()}
            found.append((list(seen), buffers, y.tolist()))
        (calls, state, y), (ours, our_state, our_y) = found
        assert [c[1:] for c in ours] == [c[1:] for c in calls]
        assert our_state.keys() == state.keys()
        for key, value in state.items():
            assert our_state[key] == pytest.approx(value)
        assert our_y == [pytest.approx(row, abs=1e-6) for row in y]

"""Every layer with PyTorch's inputs as a program: traced, exported, scripted, saved and loaded."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from typing import Any

import pytest
from layers import INFOS, RANDOM, flat, translated

import tilewright as tw

FAST = "nn_BatchNorm2d nn_ConvTranspose1d nn_GRU".split()
LEFT = ("nn_TransformerEncoder",)  # its constructor takes a layer of PyTorch's


def calls(torch: Any, info: Any) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any], bool]]:
    """(layer, arguments, keywords, whether it draws numbers)."""
    torch.manual_seed(0)
    kind = info.module_cls.__name__
    drawing = kind.startswith(RANDOM) or kind.endswith(RANDOM)
    for training in (False, True) if info.train_and_eval_differ else (True,):
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for given in inputs[: 2 if info.formatted_name in FAST else 4]:
            made, call = given.constructor_input, given.forward_input
            options = dict(made.kwargs)
            if call is None or options.get("options") is not None:
                continue
            layer = getattr(tw.nn, kind)(
                *translated(made.args, torch), **translated(options, torch)
            )
            args, kwargs = translated(call.args, torch), translated(call.kwargs, torch)
            yield layer.train(training), tuple(args), dict(kwargs), drawing and training


def by_name(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(inspect.signature(layer.forward).bind(*args, **kwargs).arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in INFOS if n not in LEFT],
)
def test_a_layer_as_a_program(torch: Any, name: str) -> None:
    compared = 0
    for layer, args, kwargs, drawing in calls(torch, INFOS[name]):
        wanted = flat(layer(*args, **kwargs), tw.Tensor)
        if kwargs:
            traced = tw.jit.trace(
                layer, example_kwarg_inputs=by_name(layer, args, kwargs), check_trace=False
            )
        else:
            traced = tw.jit.trace(layer, args, check_trace=False)
        file = io.BytesIO()
        exported = tw.export.export(layer, args, kwargs)
        tw.export.save(exported, file)
        file.seek(0)
        programs = [traced, tw.jit.script(layer)]
        programs += [tw.jit.load(io.BytesIO(p.save_to_buffer())) for p in programs]
        programs += [exported.module(), tw.export.load(file).module()]
        for program in programs:
            found = flat(program(*args, **kwargs), tw.Tensor)
            assert len(found) == len(wanted)
            for a, b in zip(found, wanted, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                assert drawing or tw.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
        compared += 1
    assert compared

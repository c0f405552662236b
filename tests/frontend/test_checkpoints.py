"""Files of torch.save that go from tilewright to PyTorch and back: whole modules, optimizers with
their schedulers, storages, attributes, and what is refused."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layers import INFOS, flat, translated

import tilewright as tw

FAST = "nn_BatchNorm2d nn_Conv2d nn_GELU nn_LSTM nn_ReLU6 nn_TransformerDecoderLayer".split()
LEFT = ("nn_TransformerEncoder",)  # its constructor takes a layer of PyTorch's


def moved(value: Any, source: Any, target: Any, **options: Any) -> Any:
    file = io.BytesIO()
    source.save(value, file)
    file.seek(0)
    return target.load(file, **options)


def agree(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in INFOS if n not in LEFT],
)
def test_whole_layers(torch: Any, name: str) -> None:
    info = INFOS[name]
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    for given in inputs[:4]:
        made, call = given.constructor_input, given.forward_input
        options = dict(made.kwargs)
        if call is None or options.get("options") is not None or "_random_samples" in options:
            continue
        ours = getattr(tw.nn, info.module_cls.__name__)(
            *translated(made.args, torch), **translated(options, torch)
        ).eval()
        theirs = info.module_cls(*made.args, **options).eval()
        args, kwargs = translated(call.args, torch), translated(call.kwargs, torch)
        for layer, lib, other in ((ours, tw, torch), (theirs, torch, tw)):
            if any(torch.nn.parameter.is_lazy(p) for p in theirs.parameters()):
                continue
            found = moved(layer, lib, other, weights_only=False)
            assert type(found).__name__ == type(layer).__name__ and repr(found) == repr(layer)
            assert list(found.state_dict()) == list(layer.state_dict())
            own = {tw: (args, kwargs), torch: (call.args, call.kwargs)}
            a = flat(layer(*own[lib][0], **own[lib][1]), lib.Tensor)
            b = flat(found(*own[other][0], **own[other][1]), other.Tensor)
            assert len(a) == len(b) > 0
            for x, y in zip(a, b, strict=True):
                agree(x, y, 1e-4)


def training(lib: Any) -> tuple[Any, Any, Any]:
    lib.manual_seed(0)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2))
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    schedule = lib.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20)
    step(lib, model, optimizer, schedule)
    return model, optimizer, schedule


def step(lib: Any, model: Any, optimizer: Any, schedule: Any) -> None:
    optimizer.zero_grad()
    model(lib.linspace(-1, 1, 15).reshape(5, 3)).square().sum().backward()
    optimizer.step()
    schedule.step()


def test_training_goes_on_in_the_other(torch: Any) -> None:
    """Whole objects, which share their parameters."""
    for lib, other in ((tw, torch), (torch, tw)):
        before = training(lib)
        after = moved(before, lib, other, weights_only=False)
        assert after[1].param_groups[0]["params"][0] is after[0][0].weight
        for _ in range(3):
            step(lib, *before)
            step(other, *after)
        for x, y in zip(before[0].parameters(), after[0].parameters(), strict=True):
            agree(x, y)
        assert after[2].get_last_lr() == pytest.approx(before[2].get_last_lr())


def things(lib: Any) -> dict[str, Any]:
    base = lib.arange(12.0)
    parameter = lib.nn.Parameter(base[:2].clone())
    parameter.note = "kept"
    noted = lib.ones(3, requires_grad=True)
    noted.names_of = ["a"]
    return {
        "part": base[3:9].view(2, 3).t(),
        "whole": base,
        "half": base.to(lib.bfloat16),
        "bytes": base.to(lib.float8_e5m2),
        "complex": lib.complex(base, -base).conj(),
        "imaginary": lib.complex(base, -base).conj().imag,
        "parameter": parameter,
        "noted": noted,
        "meta": lib.empty(2, 3, device="meta", dtype=lib.float16),
        "device": lib.device("cuda", 1),
        "dtype": lib.uint16,
        "layout": lib.strided,
        "size": lib.Size([2, 3]),
        "scalar": lib.tensor(7),
        "none": lib.zeros(0, 3, dtype=lib.bool),
    }


def test_things_of_all_kinds(torch: Any) -> None:
    for lib, other in ((tw, torch), (torch, tw), (tw, tw)):
        found, wanted = moved(things(lib), lib, other), things(other)
        for name, value in wanted.items():
            mine = found[name]
            if not isinstance(value, other.Tensor):
                assert mine == value and type(mine) is type(value), name
                continue
            assert mine.dtype == value.dtype and mine.shape == value.shape, name
            assert mine.requires_grad == value.requires_grad and mine.device == value.device, name
            assert mine.stride() == value.stride() or name == "imaginary", name
            if value.device.type != "meta":
                assert mine.tolist() == value.tolist(), name
        found["whole"][4] = 50.0  # they share their memory
        assert found["part"][1, 0] == 50.0
        assert found["parameter"].note == "kept" and found["noted"].names_of == ["a"]


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_storages(torch: Any) -> None:
    for lib, other in ((tw, torch), (torch, tw), (tw, tw)):
        x = lib.arange(3.0)
        found = moved({"t": x, "bytes": [lib.ones(2).untyped_storage()]}, lib, other)
        assert bytes(found["bytes"][0].tolist()) == np.ones(2, "f4").tobytes()
        assert found["t"].tolist() == [0, 1, 2]


def test_files_are_mapped_into_memory(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "big.pt"
    for lib in (tw, torch):
        lib.save({"a": lib.arange(1000.0), "b": [lib.arange(3)]}, path)
        for reader in (tw, torch):
            found = reader.load(path, mmap=True)
            assert found["a"].sum() == 499500 and found["b"][0].tolist() == [0, 1, 2]
            found["a"][0] = 5.0  # in memory alone
        assert tw.load(path)["a"][0] == 0
    with pytest.raises(ValueError, match="must be a file path"):
        tw.load(io.BytesIO(path.read_bytes()), mmap=True)
    torch.save([torch.ones(1)], path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        tw.load(path, mmap=True)
    assert tw.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(ValueError, match="MAP_SHARED"):
        tw.serialization.set_default_mmap_options(77)


class Known:
    def __init__(self) -> None:
        self.x = 1


def test_what_weights_only_refuses(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    tw.save({"k": Known(), "t": tw.ones(1), "layer": tw.nn.ReLU()}, path)
    asked = ["torch.nn.modules.activation.ReLU", f"{__name__}.Known"]
    for lib in (tw, torch):
        found = lib.serialization.get_unsafe_globals_in_checkpoint(path)
        assert set(found) - {"copyreg.__newobj__"} == set(asked)
        with pytest.raises(Exception, match="Weights only load failed"):
            lib.load(path)
    tw.save({"k": Known()}, path)
    with tw.serialization.safe_globals([Known]):
        assert tw.load(path)["k"].x == 1
    with pytest.raises(tw.serialization.UnpicklingError, match="add_safe_globals"):
        tw.load(path)


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_rebuilt_is_told(torch: Any) -> None:
    nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])
    with pytest.raises(RuntimeError, match="unbind"):
        moved(nested, torch, tw)


def test_parametrized_weights(torch: Any) -> None:
    def model(lib: Any) -> Any:
        layer = lib.nn.Linear(3, 4)
        lib.nn.utils.parametrizations.weight_norm(layer)
        lib.nn.utils.parametrizations.spectral_norm(layer, "bias")
        return layer.eval()

    for lib, other in ((tw, torch), (torch, tw)):
        before, after = model(lib), model(other)
        after.load_state_dict(moved(before.state_dict(), lib, other))
        agree(after(other.ones(2, 3)), before(lib.ones(2, 3)))

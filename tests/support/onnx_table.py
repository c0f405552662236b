"""The table of exports: models with dynamic sizes in onnxruntime, beside their own results.

`axes(model, args)` finds which axes of the inputs may have other sizes, alone or together, by
running the model. `examine(model, args)` exports it with them, and compares at three lists of
sizes: the example's, and two others that the export didn't see.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from layers import INFOS, translated
from onnx_session import session
from onnx_zoo import models

import tilewright as tw
import tilewright.nn as nn
from tilewright.inspection.tracing import Call
from tilewright.onnx import export
from tilewright.onnx.check import difference as different
from tilewright.onnx.check import results

Axis = tuple[int, int]

LARGER = (3, 8)
"""What is added to each dynamic size, beside its number."""

TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-6}


@dataclass
class Result:
    """One model's row. state: right, fixed (only without dynamic axes), refused or wrong."""

    state: str
    dynamic: int = 0
    candidates: int = 0
    reason: str = ""


def run(call: Call, sizes: Mapping[Axis, int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(inputs, results) of the model with other sizes."""
    inputs, made = results(call, sizes)
    return [t.detach().numpy() for t in inputs], [array for _, array in made]


def _works(call: Call, sizes: Mapping[Axis, int]) -> bool:
    try:
        run(call, sizes)
    except Exception:  # whatever it is, the model doesn't take these sizes
        return False
    return True


def axes(call: Call) -> dict[Axis, str]:
    """The axes that may change, each with the name of its size; axes of one name change together.

    An axis alone is tried first, then with others of the same size in the other inputs.
    """
    every = [(i, a) for i, t in enumerate(call.inputs) for a in range(t.dim())]
    size = {(i, a): call.inputs[i].shape[a] for i, a in every}
    found: dict[Axis, str] = {}
    for place in every:
        if place in found or size[place] < 2:
            continue
        others = [
            p for p in every if p not in found and size[p] == size[place] and p[1] == place[1]
        ]
        anywhere = [p for p in every if p not in found and size[p] == size[place]]
        for group in ([place], others, anywhere):
            kept = {p: n for p, n in found.items()}
            trial = {p: size[p] * 2 for p in group}
            more = {p: size[p] + 3 for p in group}
            if _works(call, trial) and _works(call, more):
                found.update(dict.fromkeys(group, f"n{len(set(kept.values()))}"))
                break
    return found


def grown(call: Call, dynamic: Mapping[Axis, str], step: int) -> dict[Axis, int]:
    names = sorted(set(dynamic.values()))
    return {
        place: call.inputs[place[0]].shape[place[1]] + step + names.index(name)
        for place, name in dynamic.items()
    }


def difference(program: Any, call: Call, sizes: Mapping[Axis, int]) -> str:
    """What differs from our results at these sizes; an empty text if nothing does."""
    inputs, wanted = run(call, sizes)
    s = session(program)
    feed = {i.name: a for i, a in zip(s.get_inputs(), inputs, strict=True)}
    for number, (mine, other) in enumerate(zip(wanted, s.run(None, feed), strict=True)):
        found = different(mine, other, TOLERANCE, ties=0)
        if found:
            return f"output {number} {found}, for {[list(i.shape) for i in inputs]}"
    return ""


def examine(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Result:
    """Export with all axes that may change, or else without any."""
    call = Call(model, args, kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamic = axes(call)
        error = ""
        for chosen in [dynamic, {}] if dynamic else [{}]:
            try:
                names = [f"i{k}" for k in range(len(call.inputs))]
                spelled: dict[str, dict[int, str]] = {n: {} for n in names}
                for (i, a), name in chosen.items():
                    spelled[names[i]][a] = name
                program = export(
                    model,
                    args,
                    kwargs=kwargs,
                    input_names=names,
                    dynamic_axes={n: d for n, d in spelled.items() if d},
                    verify=False,
                    **options,
                )
            except Exception as e:
                error = error or f"{type(e).__name__}: {e}"
                continue
            for step in (0, *LARGER) if chosen else (0,):
                try:
                    wrong = difference(program, call, grown(call, chosen, step))
                except Exception as e:
                    wrong = f"{type(e).__name__}: {e}".replace("\n", " ")[:300]
                if wrong:
                    return Result("wrong", len(chosen), len(dynamic), wrong)
            state = "fixed" if dynamic and not chosen else "right"
            return Result(state, len(chosen), len(dynamic), error)
    return Result("refused", 0, len(dynamic), error)


# ---- what is exported ------------------------------------------------------------------------

Case = tuple[str, Callable[[], tuple[Any, Any, Mapping[str, Any]]]]
"""(name, function that gives the model, its arguments and keywords)."""


def layers(most: int = 3) -> Iterator[Case]:
    """The layers of PyTorch's database of modules, each with its first `most` inputs."""
    import torch

    for name, info in INFOS.items():
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
            )
        given = [g for g in given if g.forward_input is not None]
        for number, each in enumerate(given[:most]):
            yield f"{name.removeprefix('nn_')} {number}", _layer(info, each, torch)


def _layer(info: Any, given: Any, torch: Any) -> Any:
    def make() -> tuple[Any, Any, Mapping[str, Any]]:
        made = given.constructor_input
        kind = getattr(nn, info.module_cls.__name__)
        tw.manual_seed(0)
        model = kind(*translated(made.args, torch), **translated(made.kwargs, torch)).eval()
        args = translated(tuple(given.forward_input.args), torch)
        kwargs = translated(dict(given.forward_input.kwargs), torch)
        if any(nn.parameter.is_lazy(p) for p in model.parameters()):
            model(*args, **kwargs)
        return model, args, kwargs

    return make


def _of(function: Callable[..., Any], *shapes: Any, **kwargs: Any) -> Callable[[], Any]:
    """A case of a function (or of a module that `function` makes, if it takes nothing)."""

    def make() -> tuple[Any, Any, Mapping[str, Any]]:
        tw.manual_seed(0)
        model = function() if isinstance(function, type) else function
        args = tuple(tw.randn(*s) if isinstance(s, tuple) else s for s in shapes)
        return model, args, kwargs

    return make


def functions() -> Iterator[Case]:
    """Functions of sizes, and layers in the forms that models of vision use."""
    F = nn.functional
    image = (2, 3, 8, 12)
    up = F.interpolate
    modes = "nearest nearest-exact bilinear bicubic area".split()
    for mode in modes:
        more = {} if mode in ("nearest", "nearest-exact", "area") else {"align_corners": False}
        if mode != "area":
            yield (
                f"interpolate {mode} by 2",
                _of(lambda x, m=mode: up(x, scale_factor=2, mode=m), image),
            )
            yield (
                f"interpolate {mode} by 1.5",
                _of(lambda x, m=mode: up(x, scale_factor=1.5, mode=m), image),
            )
            yield (
                f"interpolate {mode} by 0.5",
                _of(lambda x, m=mode: up(x, scale_factor=0.5, mode=m), image),
            )
        yield (
            f"interpolate {mode} to a size",
            _of(lambda x, m=mode, o=more: up(x, size=(9, 16), mode=m, **o), image),
        )
        yield (
            f"interpolate {mode} to another's size",
            _of(
                lambda x, y, m=mode, o=more: up(x, size=y.shape[2:], mode=m, **o),
                image,
                (1, 1, 11, 13),
            ),
        )
    for mode in ("bilinear", "bicubic"):
        yield (
            f"interpolate {mode} aligned by 2",
            _of(lambda x, m=mode: up(x, scale_factor=2, mode=m, align_corners=True), image),
        )
        yield (
            f"interpolate {mode} aligned to a size",
            _of(lambda x, m=mode: up(x, size=(9, 16), mode=m, align_corners=True), image),
        )
        yield (
            f"interpolate {mode} aligned to another's size",
            _of(
                lambda x, y, m=mode: up(x, size=y.shape[2:], mode=m, align_corners=True),
                image,
                (1, 1, 11, 13),
            ),
        )
        yield (
            f"interpolate {mode} antialias",
            _of(lambda x, m=mode: up(x, scale_factor=0.5, mode=m, antialias=True), image),
        )
        yield (
            f"interpolate {mode} antialias to a size",
            _of(lambda x, m=mode: up(x, size=(5, 7), mode=m, antialias=True), image),
        )
    yield "interpolate linear by 2", _of(lambda x: up(x, scale_factor=2, mode="linear"), (2, 3, 8))
    yield (
        "interpolate trilinear by 2",
        _of(lambda x: up(x, scale_factor=2, mode="trilinear"), (1, 2, 4, 5, 6)),
    )
    yield (
        "Upsample bilinear",
        _of(nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 4, 3)), image),
    )
    yield "linspace", _of(lambda x: x + tw.linspace(0, 1, x.shape[-1]), (2, 9))
    yield (
        "linspace of sizes",
        _of(lambda x: x + tw.linspace(-1, x.shape[1] - 1, x.shape[-1]), (2, 5, 9)),
    )
    yield "eye", _of(lambda x: x + tw.eye(x.shape[-1]), (7, 7))
    yield "arange", _of(lambda x: x + tw.arange(x.shape[-1]), (2, 9))
    yield "arange of steps", _of(lambda x: x[:, ::2] + tw.arange(0, x.shape[-1], 2), (2, 9))
    yield (
        "arange from a size",
        _of(lambda x: x + tw.arange(x.shape[-1] - 1, -1, -1, dtype=tw.float32), (2, 9)),
    )
    yield "full", _of(lambda x: x + tw.full((x.shape[1],), x.shape[1] / 7), (2, 9))
    yield "size as a number", _of(lambda x: x * x.shape[1] + x.shape[0] / x.shape[1], (6, 9))
    yield "root of a size", _of(lambda x: x * x.shape[1] ** -0.5, (6, 9))
    yield "log of a size", _of(lambda x: x * np.log(x.shape[1]), (6, 9))
    yield "size of a product", _of(lambda x: x / (x.shape[0] * x.shape[1]), (6, 9))
    yield "two sizes", _of(lambda x: x * (x.shape[0] + 2 * x.shape[1]), (6, 9))
    yield (
        "reshape by sums",
        _of(lambda x, y: tw.cat([x, y]).reshape(1, x.shape[0] + y.shape[0], 3), (4, 3), (6, 3)),
    )
    yield "half of a size", _of(lambda x: x[:, : x.shape[1] // 2] * (x.shape[1] // 2), (2, 9))
    yield "negative half", _of(lambda x: x[:, -(x.shape[1] // 3) :], (2, 9))
    yield "ceil of a size", _of(lambda x: x[:, : -(-x.shape[1] // 2)], (2, 9))
    yield "window partition", _of(_partition, (2, 8, 12, 3))
    yield "padding to a multiple", _of(_padded, (2, 3, 9, 14))
    for kind, dims in (("max", 1), ("max", 2), ("avg", 1), ("avg", 2), ("avg", 3)):
        pool = getattr(F, f"{kind}_pool{dims}d")
        size = (2, 3, *(9, 12, 7)[:dims])
        yield f"{kind}_pool{dims}d ceil", _of(lambda x, p=pool: p(x, 3, 2, ceil_mode=True), size)
        yield (
            f"{kind}_pool{dims}d ceil padded",
            _of(lambda x, p=pool: p(x, 3, 2, 1, ceil_mode=True), size),
        )
    yield "max_pool2d with indices", _of(lambda x: F.max_pool2d(x, 2, return_indices=True), image)
    yield (
        "max_unpool2d",
        _of(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), image),
    )
    for size in (1, 2, (3, 5)):
        yield (
            f"adaptive_avg_pool2d to {size}",
            _of(lambda x, s=size: F.adaptive_avg_pool2d(x, s), image),
        )
        yield (
            f"adaptive_max_pool2d to {size}",
            _of(lambda x, s=size: F.adaptive_max_pool2d(x, s), image),
        )
    yield "cumprod", _of(lambda x: x.cumprod(1), (3, 5))
    yield "cummax", _of(lambda x: tuple(x.cummax(1)), (3, 5))
    yield "cummin", _of(lambda x: tuple(x.cummin(0)), (3, 5))
    yield "logcumsumexp", _of(lambda x: x.logcumsumexp(1), (3, 5))
    yield "cumsum", _of(lambda x: x.cumsum(1), (3, 5))
    yield "linalg.cross", _of(lambda x, y: tw.linalg.cross(x, y), (4, 3), (4, 3))
    yield "linalg.norm", _of(lambda x: tw.linalg.norm(x, dim=-1), (4, 3))
    yield "linalg.vecdot", _of(lambda x, y: tw.linalg.vecdot(x, y), (4, 3), (4, 3))
    yield "det", _of(lambda x: tw.linalg.det(x), (4, 3, 3))
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for aligned in (False, True):
                yield (
                    f"grid_sample {mode} {padding} {'aligned' if aligned else ''}".strip(),
                    _of(
                        lambda x, g, m=mode, p=padding, a=aligned: F.grid_sample(
                            x, g.tanh() * 1.3, m, p, align_corners=a
                        ),
                        image,
                        (2, 5, 7, 2),
                    ),
                )
    yield (
        "grid_sample of volumes",
        _of(
            lambda x, g: F.grid_sample(x, g, align_corners=False), (1, 2, 4, 5, 6), (1, 3, 4, 5, 3)
        ),
    )
    for aligned in (False, True):
        yield (
            f"affine_grid {'aligned' if aligned else ''}".strip(),
            _of(
                lambda t, x, a=aligned: F.affine_grid(t, x.shape, align_corners=a), (2, 2, 3), image
            ),
        )
    yield (
        "affine_grid of volumes",
        _of(
            lambda t, x: F.affine_grid(t, x.shape, align_corners=False), (2, 3, 4), (2, 1, 4, 5, 6)
        ),
    )
    yield (
        "spatial transformer",
        _of(
            lambda t, x: F.grid_sample(
                x, F.affine_grid(t, x.shape, align_corners=False), align_corners=False
            ),
            (2, 2, 3),
            image,
        ),
    )
    yield "nonzero", _of(lambda x: tw.nonzero(x > 0), (5, 7))
    yield "nonzero as tuple", _of(lambda x: tw.nonzero(x > 0, as_tuple=True), (5, 7))
    yield "where of one", _of(lambda x: tw.where(x > 0), (5, 7))
    yield "mask", _of(lambda x: x[x > 0] * 2, (5, 7))
    yield "mask of rows", _of(lambda x: x[x[:, 0] > 0] + 1, (5, 7))
    yield "masked_select", _of(lambda x: x.masked_select(x > 0).sum(), (5, 7))
    yield "masked write", _of(_masked_write, (5, 7))
    yield "unique", _of(lambda x: tw.unique(x.round()), (5, 7))
    yield (
        "unique with all",
        _of(lambda x: tw.unique(x.round(), return_inverse=True, return_counts=True), (5, 7)),
    )
    yield "topk of half", _of(lambda x: tw.topk(x, x.shape[-1] // 2), (5, 8))
    yield "sort", _of(lambda x: tw.sort(x, -1), (5, 8))
    yield "roll", _of(lambda x: x.roll(2, 1), (5, 8))
    yield "roll by half", _of(lambda x: x.roll(x.shape[1] // 2, 1), (5, 8))
    yield "repeat", _of(lambda x: x.repeat(2, 3), (5, 8))
    yield "repeat_interleave", _of(lambda x: x.repeat_interleave(3, 1), (5, 8))
    yield "tril", _of(lambda x: x.tril(), (6, 8))
    yield (
        "triu mask",
        _of(lambda x: x.masked_fill(tw.ones(x.shape[0], x.shape[0]).triu(1) > 0, -9.0), (6, 6)),
    )
    yield (
        "meshgrid",
        _of(
            lambda x: (
                tw.stack(
                    tw.meshgrid(tw.arange(x.shape[0]), tw.arange(x.shape[1]), indexing="ij"), -1
                )
                * x.unsqueeze(-1)
            ),
            (5, 8),
        ),
    )
    yield "one_hot", _of(lambda x: F.one_hot((x.abs() * 2).long().clamp(max=6), 7), (5, 8))
    yield "scatter", _of(lambda x: tw.zeros(x.shape).scatter(1, x.argsort(1), x), (5, 8))
    yield "gather", _of(lambda x: x.gather(1, x.argsort(1)), (5, 8))
    yield "index_select", _of(lambda x: x.index_select(1, tw.tensor([2, 0])), (5, 8))
    yield "einsum", _of(lambda x, y: tw.einsum("bij,bkj->bik", x, y), (2, 4, 5), (2, 6, 5))
    yield "std", _of(lambda x: x.std(1), (5, 8))
    yield "median", _of(lambda x: x.median(1).values, (5, 8))
    yield "unfold", _of(lambda x: F.unfold(x, 3, padding=1), image)
    yield "fold", _of(lambda x: F.fold(F.unfold(x, 2, stride=2), (8, 12), 2, stride=2), image)
    yield "pixel_shuffle", _of(lambda x: F.pixel_shuffle(x, 2), (2, 12, 4, 5))
    yield "pixel_unshuffle", _of(lambda x: F.pixel_unshuffle(x, 2), image)
    yield (
        "attention",
        _of(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
            (2, 3, 5, 8),
            (2, 3, 7, 8),
            (2, 3, 7, 8),
        ),
    )
    yield (
        "causal attention",
        _of(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (2, 3, 5, 8),
            (2, 3, 5, 8),
            (2, 3, 5, 8),
        ),
    )
    yield "normalize", _of(lambda x: F.normalize(x, dim=1), (5, 8))
    yield "cdist", _of(lambda x, y: tw.cdist(x, y), (5, 8), (6, 8))
    yield "pad reflect", _of(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), image)
    yield "pad circular", _of(lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), image)
    yield "pad replicate", _of(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), image)
    for kind in ("RNN", "GRU", "LSTM"):
        for number, options in enumerate(
            (
                {},
                {"num_layers": 2, "batch_first": True},
                {"bidirectional": True},
                {"bidirectional": True, "num_layers": 2, "bias": False},
            )
        ):
            yield (
                f"{kind} {number}: {options or 'plain'}",
                _of(getattr(nn, kind)(5, 6, **options), (7, 3, 5)),
            )
    yield "RNN relu", _of(nn.RNN(5, 6, nonlinearity="relu"), (7, 3, 5))
    yield "LSTM projected", _of(nn.LSTM(5, 6, proj_size=3), (7, 3, 5))
    yield "LSTM with states", _of(nn.LSTM(5, 6), (7, 3, 5), [tw.randn(1, 3, 6), tw.randn(1, 3, 6)])
    yield "GRU with states", _of(nn.GRU(5, 6), (7, 3, 5), (1, 3, 6))
    yield (
        "batch_norm of the batch",
        _of(lambda x: F.batch_norm(x, None, None, training=True), image),
    )
    yield "group_norm", _of(nn.GroupNorm(3, 6), (2, 6, 5, 7))
    yield "instance_norm", _of(nn.InstanceNorm2d(3), image)
    yield "bincount of rows", _of(lambda x: (x > 0).sum(1) / x.shape[1], (5, 8))
    yield "diagonal", _of(lambda x: x.diagonal(), (6, 6))
    yield "trace", _of(lambda x: x.trace(), (6, 6))
    yield "kron", _of(lambda x, y: tw.kron(x, y), (2, 3), (4, 5))
    yield "outer", _of(lambda x, y: tw.outer(x, y), (4,), (5,))
    yield "argmax", _of(lambda x: x.argmax(1), (4, 5))
    yield "bucketize", _of(lambda x: tw.bucketize(x, tw.tensor([-1.0, 0.0, 1.0])), (4, 5))
    yield "searchsorted", _of(lambda x, y: tw.searchsorted(x.sort().values, y), (9,), (5,))
    yield "complex parts", _of(lambda x: tw.view_as_real(tw.view_as_complex(x) * 2j), (4, 2))


def _partition(x: Any) -> Any:
    b, h, w, c = x.shape
    parts = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    parts = parts * 2
    return parts.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


def _padded(x: Any) -> Any:
    h, w = x.shape[2:]
    x = nn.functional.pad(x, (0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
    return nn.functional.avg_pool2d(x, 4)


def _masked_write(x: Any) -> Any:
    y = x.clone()
    y[x > 0] = 0.5
    return y


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "layers": layers,
    "functions of sizes": functions,
    "models": models,
}

EXCEPTIONS = {
    "CTCLoss 1": "the lengths are tensors, and the loss reads them",
    "diagonal": "the end of the diagonal depends on the smaller of two sizes",
    "trace": "the end of the diagonal depends on the smaller of two sizes",
    "searchsorted": "the number of steps of the search depends on the size",
    "complex parts": "ONNX has next to no operators on complex numbers",
}
"""What isn't right with dynamic axes -> why."""

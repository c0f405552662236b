"""`__torch_dispatch__`: modes and wrappers of tensors beside PyTorch's, and the words of files for
devices."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw


def _of(m: Any, name: str) -> Any:
    return importlib.import_module(f"{m.__name__}.utils.{name}")


def is_size(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, (int, float)) for each in values)


def logging_mode(m: Any, log: list[Any]) -> Any:
    class Logging(_of(m, "_python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append((str(func), *filter(is_size, args)))
            return func(*args, **(kwargs or {}))

    return Logging()


def logging_tensor(m: Any, log: list[Any]) -> Any:
    """The class of tensors that wrap others and write down their operators."""
    tree_map = _of(m, "_pytree").tree_map

    class Logged(m.Tensor):  # type: ignore[misc, name-defined]
        __torch_function__ = m._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls: Any, elem: Any) -> Any:
            made = m.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(),
                dtype=elem.dtype, layout=elem.layout, device=elem.device,
            )  # fmt: skip
            made.elem = elem
            return made

        def __repr__(self, *, tensor_contents: Any = None) -> str:
            return f"Logged({self.elem})"

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{func.__module__}.{func.__name__}")
            args, kwargs = tree_map(
                lambda e: e.elem if isinstance(e, cls) else e, (args, kwargs or {})
            )
            found = func(*args, **kwargs)
            return tree_map(lambda e: cls(e) if isinstance(e, m.Tensor) else e, found)

    return Logged


Call = Callable[[Any, Any], Any]

CALLS: dict[str, Call] = {
    "arithmetic": lambda m, x: (((x + 1) * x - 2) / x).neg(),
    "numbers first": lambda m, x: (2 - (1 + x), 2 / x),
    "power": lambda m, x: x**2,
    "compare": lambda m, x: (x > 1, x == x),
    "in place": lambda m, x: x.clone().add_(1).mul_(2.0),
    "unary": lambda m, x: x.abs().sqrt().exp().tanh().sigmoid(),
    "sums": lambda m, x: (x.sum(), x.sum(dim=1), m.sum(x, 1, keepdim=True), x.mean(0)),
    "extrema": lambda m, x: (x.max(), x.max(1)[0], x.argmax(1), x.topk(1)[0]),
    "norm": lambda m, x: x.norm(),
    "activations": lambda m, x: m.nn.functional.gelu(m.nn.functional.relu(x)),
    "softmax": lambda m, x: m.nn.functional.softmax(x, dim=-1).log_softmax(1),
    "moves": lambda m, x: x.t().permute(1, 0).unsqueeze(0).expand(2, 2, 3).transpose(0, 1),
    "turned": lambda m, x: (x.T, x.movedim(0, 1), m.moveaxis(x[None], (0, 2), (1, 0))),
    "padded": lambda m, x: (
        m.nn.functional.pad(x, (1, 1)),
        m.nn.functional.pad(x, (0, 1), value=2),
    ),
    "shapes": lambda m, x: (x.view(3, 2), x.reshape(6), x.flatten(), x.repeat(2, 1)),
    "parts": lambda m, x: (x[0], x[:, 1:], x[m.tensor([1, 0])], x[..., None], x.chunk(2)[1]),
    "products": lambda m, x: (m.mm(x, x.t()), x @ x.t(), x[None] @ x.t()[None]),
    "linear": lambda m, x: m.nn.functional.linear(x, m.ones(4, 3), m.zeros(4)),
    "linear 3-d": lambda m, x: m.nn.functional.linear(x[None], m.ones(4, 3)),
    "linear 3-d, bias": lambda m, x: m.nn.functional.linear(x[None], m.ones(4, 3), m.ones(4)),
    "joined": lambda m, x: (m.cat([x, x]), m.stack([x, x])),
    "converted": lambda m, x: (x.to(m.float64), x.double(), x.float(), x.detach()),
    "chosen": lambda m, x: m.where(x > 1, x, x.masked_fill(x > 2, 0.0)),
    "made": lambda m, x: (m.zeros_like(x), m.ones(2)),
    "layers": lambda m, x: m.nn.functional.layer_norm(m.nn.functional.dropout(x, 0.5, False), (3,)),
    "loss": lambda m, x: m.nn.functional.cross_entropy(x, m.tensor([0, 2])),
    "embedding": lambda m, x: m.nn.functional.embedding(m.tensor([1, 0]), x),
    "read": lambda m, x: x.sum().item(),
}


_LAYERS: dict[str, Callable[[Any], Any]] = {
    "Conv1d": lambda n: n.Conv1d(4, 2, 3, padding="same"),
    "Conv2d": lambda n: n.Conv2d(4, 2, (3, 2), stride=2),
    "Conv2d, an even kernel": lambda n: n.Conv2d(4, 2, 2, padding="same"),
    "ConvTranspose2d": lambda n: n.ConvTranspose2d(4, 2, 3, output_padding=1, stride=2),
    "BatchNorm2d": lambda n: n.BatchNorm2d(4),
    "BatchNorm2d in inference": lambda n: n.BatchNorm2d(4).eval(),
    "InstanceNorm2d": lambda n: n.InstanceNorm2d(4, affine=True),
    "GroupNorm": lambda n: n.GroupNorm(2, 4),
    "MaxPool2d": lambda n: n.MaxPool2d(2, padding=1),
    "AdaptiveAvgPool2d": lambda n: n.Sequential(n.AdaptiveAvgPool2d(2), n.AdaptiveAvgPool2d(1)),
    "Upsample": lambda n: n.Upsample(scale_factor=1.5),
    "Upsample, bilinear": lambda n: n.Upsample((3, 5), mode="bilinear", align_corners=True),
    "Upsample, bicubic": lambda n: n.Upsample(scale_factor=2, mode="bicubic"),
    "pads": lambda n: n.Sequential(n.ReflectionPad2d(1), n.ReplicationPad2d(1), n.ZeroPad2d(1)),
    "Unfold": lambda n: n.Unfold(2),
    "GLU": lambda n: n.GLU(1),
    "in place": lambda n: n.Sequential(
        *(n.Identity(), n.ReLU(True), n.LeakyReLU(0.1, True), n.Hardtanh(-1, 2, inplace=True)),
        *(n.ELU(0.5, True), n.SiLU(True), n.Mish(True), n.Hardswish(True), n.ReLU6(True)),
    ),
}
LAYERS: dict[str, Call] = {
    "rows": lambda m, x: m.nn.Embedding(5, 3, padding_idx=0, _weight=m.arange(15.0).view(5, 3))(
        m.tensor([[1, 0], [4, 2]])
    ),
    "attention": lambda m, x: (
        m.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        m.nn.functional.scaled_dot_product_attention(x, x, x, x @ x.mT, scale=0.5),
    ),
    "losses": lambda m, x: (
        m.nn.functional.cross_entropy(x, m.ones(2, 6, 5, dtype=m.long)),
        m.nn.functional.cross_entropy(x[0], m.ones(6, 5).long()[:4], reduction="none"),
        m.nn.functional.binary_cross_entropy_with_logits(x, x.sigmoid()),
        m.nn.functional.l1_loss(x, x * 2),
    ),
    "copies": lambda m, x: (
        x.transpose(1, 2).reshape(2, -1), x.permute(0, 2, 3, 1).contiguous(), x.contiguous(),
    ),
    "products with vectors": lambda m, x: (x @ x[0, 0, 0], x[0, 0, 0] @ x[0, 0].t()),
    "writes": lambda m, x: _written(m, x.clone()),
}  # fmt: skip


def _written(m: Any, x: Any) -> Any:
    x[0], x[:, 1, 2:] = 5.0, x[:, 2, 2:]
    x[1, 2, m.tensor([0, 3])] = m.ones(2, 5)
    return x


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", [*LAYERS, *_LAYERS])
def test_operators_of_layers(torch: Any, name: str) -> None:
    """A mode sees the operators that PyTorch's sees in layers, and the values are the same."""

    def run(m: Any) -> tuple[list[str], list[Any]]:
        seen: list[Any] = []
        x = m.arange(240.0).reshape(2, 4, 6, 5).sin()
        call = LAYERS.get(name)
        if call is None:
            layer = _LAYERS[name](m.nn)
            x = x[:, :, 0] if "Conv1d" in name else x
            with m.no_grad():
                for i, p in enumerate(layer.parameters()):
                    p.copy_(m.arange(float(p.numel())).reshape(p.shape).cos() + i)
            call = lambda m, x: layer(x)  # noqa: E731
        with m.no_grad(), logging_mode(m, seen):
            found = call(m, x)
        values = found if isinstance(found, tuple) else (found,)
        ends = ("detach", "lift_fresh", "empty")  # PyTorch's own bookkeeping
        names = [op for op, *_ in seen if not op.removeprefix("aten.").startswith(ends)]
        return names, [np.asarray(v.tolist()) for v in values]

    ours, theirs = run(tw), run(torch)
    assert ours[0] == theirs[0]
    for mine, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"need_weights": False}, {"attn_mask": 2}, {"attn_mask": 3, "key_padding_mask": True}],
    ids=str,
)
@pytest.mark.parametrize("is_self", [True, False])
def test_attention_of_several_heads(torch: Any, is_self: bool, options: dict[str, Any]) -> None:
    """A mode sees PyTorch's products. The values are those without a mode."""

    def run(m: Any) -> list[str]:
        seen: list[Any] = []
        layer = m.nn.MultiheadAttention(4, 2, batch_first=True)
        x = m.arange(40.0).reshape(2, 5, 4).sin()
        others = (x, x) if is_self else (x.cos(), x * 2)
        given = dict(options)
        if "attn_mask" in given:
            given["attn_mask"] = ~m.ones(5, 5, dtype=m.bool).tril()
            if options["attn_mask"] == 3:
                given["attn_mask"] = given["attn_mask"].expand(4, 5, 5)
        if "key_padding_mask" in given:
            given["key_padding_mask"] = m.arange(5).expand(2, 5) > 3
        with m.no_grad():
            wanted = layer(x, *others, **given)
            with logging_mode(m, seen):
                found = layer(x, *others, **given)
        for a, b in zip(found, wanted, strict=True):
            assert a is b is None or m.allclose(a, b, atol=1e-6)
        kinds = ("mm", "addmm", "bmm", "baddbmm", "_softmax", "_scaled", "mean")
        return [op for op, *_ in seen if op.removeprefix("aten.").startswith(kinds)]

    ours, theirs = run(tw), run(torch)
    assert sorted(ours) == sorted(theirs)


def test_recurrent_layers_ask_no_mode() -> None:
    with logging_mode(tw, []), pytest.warns(UserWarning, match="recurrent layers run no operators"):
        tw.nn.LSTM(2, 2)(tw.ones(1, 2))


def test_what_an_operator_tells_of_itself(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        told: list[Any] = []

        class Telling(_of(m, "_python_dispatch").TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                schema = func._schema
                told.append((func._overloadpacket is m.ops.aten.mm, func.name(), schema.name))
                told.append((schema.overload_name, schema.is_mutable, func.namespace))
                return func(*args, **(kwargs or {}))

        with Telling():
            m.mm(m.ones(1, 2), m.ones(2, 1)).add_(1)
        return told

    assert run(tw) == run(torch)


def test_backward_passes_ask_no_mode() -> None:
    x = tw.ones(2, requires_grad=True)
    message = "a backward pass runs no operators here"
    with logging_mode(tw, []), pytest.warns(UserWarning, match=message):
        x.sum().backward()
    assert x.grad.tolist() == [1, 1]


@pytest.mark.parametrize("name", CALLS)
def test_operators_that_are_asked_for(torch: Any, name: str) -> None:
    """A mode and a wrapper see the same operators as PyTorch's, and give the same values."""

    def run(m: Any) -> tuple[list[Any], list[Any], list[Any]]:
        seen: list[Any] = []
        asked: list[Any] = []
        x = m.arange(6.0).reshape(2, 3) + 0.5
        wrapped = logging_tensor(m, asked)(x)
        with m.no_grad():
            with logging_mode(m, seen):
                CALLS[name](m, x)
            found = CALLS[name](m, wrapped)
        found = found if isinstance(found, tuple) else (found,)
        values = [getattr(each, "elem", each) for each in found]
        return seen, asked, [np.asarray(v.tolist() if m.is_tensor(v) else v) for v in values]

    ours, theirs = run(tw), run(torch)
    assert ours[:2] == theirs[:2]
    for mine, other in zip(ours[2], theirs[2], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_a_model_with_quantized_weights(torch: Any) -> None:
    """A parameter that wraps int8 and a scale, as tutorials write it."""

    def run(m: Any) -> tuple[list[list[float]], list[Any]]:
        aten = m.ops.aten

        class Int8(m.Tensor):  # type: ignore[misc, name-defined]
            __torch_function__ = m._C._disabled_torch_function_impl

            @staticmethod
            def __new__(cls: Any, data: Any, scale: Any) -> Any:
                made = m.Tensor._make_wrapper_subclass(cls, data.size(), dtype=scale.dtype)
                made.data8, made.scale = data, scale
                return made

            @classmethod
            def of(cls, w: Any) -> Any:
                scale = w.abs().amax() / 127
                return cls((w / scale).round().to(m.int8), scale)

            def __tensor_flatten__(self) -> Any:
                return ["data8", "scale"], None

            @classmethod
            def __tensor_unflatten__(cls, inner: Any, _: Any, size: Any, stride: Any) -> Any:
                return cls(inner["data8"], inner["scale"])

            @classmethod
            def __torch_dispatch__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if func in (aten.detach.default, aten.t.default):
                    return cls(func(args[0].data8), args[0].scale)
                if func is aten.addmm.default:
                    bias, x, w = args
                    return m.addmm(bias, x, w.data8.to(x.dtype) * w.scale)
                raise NotImplementedError(f"Int8: {func}")

        layer = m.nn.Linear(3, 2)
        values = m.tensor([[0.5, -1.0, 0.25], [1.0, 0.125, -0.75]])
        with m.no_grad():
            layer.bias.copy_(m.tensor([0.5, -0.5]))
            layer.weight = m.nn.Parameter(Int8.of(values), requires_grad=False)
            y = layer(m.arange(6.0).reshape(2, 3))
        w = layer.weight
        told = [tuple(w.shape), str(w.dtype), w.stride(), w.dim(), w.numel(), w.requires_grad]
        told += [isinstance(w, m.nn.Parameter), str(w.device), w.is_leaf, type(w).__name__]
        dispatch = _of(m, "_python_dispatch")
        told += [
            dispatch.is_traceable_wrapper_subclass(w),
            dispatch.is_traceable_wrapper_subclass(y),
        ]
        with pytest.raises(NotImplementedError, match=r"Int8: aten\.exp\.default"), m.no_grad():
            w.exp()
        return y.tolist(), told

    ours, theirs = run(tw), run(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    assert ours[1] == theirs[1]


def test_modes_are_asked_innermost_first(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        log: list[Any] = []
        dispatch = _of(m, "_python_dispatch")

        class Named(dispatch.TorchDispatchMode):  # type: ignore[misc]
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                log.append((self.name, str(func)))
                return func(*args, **(kwargs or {}))

        x = m.ones(2)
        with Named("outer"), Named("inner") as inner:
            log.append(dispatch._get_current_dispatch_mode() is inner)
            y = x * 3
            with dispatch._disable_current_modes():
                y.exp()
        log.append(dispatch._get_current_dispatch_mode())
        y.exp()
        return [*log, y.tolist()]

    assert run(tw) == run(torch)


def test_what_there_is_not_says_so() -> None:
    Logged = logging_tensor(tw, [])
    x = Logged(tw.ones(2, 3))
    with pytest.raises(NotImplementedError, match=r"Logged: .*can't require a gradient"):
        x.requires_grad_()
    with pytest.raises(NotImplementedError, match=r"Logged.__torch_dispatch__ isn't asked"):
        tw.nn.functional.kl_div(x, x, reduction="sum")
    with pytest.raises(RuntimeError, match="needs a class with a __torch_dispatch__"):
        tw.Tensor._make_wrapper_subclass(type("Plain", (tw.Tensor,), {}), (2,))


def test_locations(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        s, found = m.serialization, []
        found.append(s.location_tag(m.ones(2).untyped_storage()))
        module = types.ModuleType("package")
        check = s.check_module_version_greater_or_equal
        for version in ("1.2.3", "1.3.0", "0.9.9"):
            module.__version__ = version
            found.append(check(module, (1, 2, 3)))
        module.__version__ = "1.x"
        with pytest.raises(RuntimeError, match="malformed"):
            check(module, (1, 2))
        with pytest.warns(UserWarning, match="requirement is met"):
            found.append(check(module, (1, 2), error_if_malformed=False))
        if not m.cuda.is_available():
            with pytest.raises(RuntimeError, match=r"map_location=torch\.device"):
                s.validate_cuda_device("cuda:0")
        return found

    assert run(tw) == run(torch)

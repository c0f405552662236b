"""Learn what usual calls compute, for the file of `frontend/recording/lessons.py`.

    python tools/usual_calls.py

The calls are those of models, losses and optimizers, with and without gradient, on tensors of one
to four dimensions. Each is made with four sets of sizes. `make_pack.py` runs this.

`data` makes tensors as a model gets them and gives them on, and `make` those of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tilewright as torch
import tilewright.nn.functional as F
from tilewright import nn
from tilewright.recording import epoch, lessons, novelty
from tilewright.runtime import tiers

Make = Callable[..., Any]
Call = Callable[..., Any]

SIZES = ((2, 5, 8, 6), (3, 7, 12, 10), (4, 9, 20, 14), (5, 11, 16, 12))

UNARY = (
    "abs", "neg", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "square", "sin", "cos", "tanh",
    "sigmoid", "relu", "reciprocal", "sign", "floor", "ceil", "round", "erf", "isnan", "isfinite",
    "logical_not",
)  # fmt: skip
ACTIVATIONS = (
    "relu", "gelu", "silu", "softplus", "leaky_relu", "elu", "selu", "mish", "hardtanh", "relu6",
    "hardswish", "logsigmoid", "tanh", "sigmoid",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
FOLDS = ("sum", "mean", "amax", "amin", "prod", "var", "std", "logsumexp")


def _elementwise() -> Iterator[Call]:
    for name in UNARY:
        yield lambda x, name=name: getattr(torch, name)(x)
    for name in ACTIVATIONS:
        yield lambda x, name=name: getattr(F, name)(x)
    yield lambda x: F.gelu(x, approximate="tanh")
    yield lambda x: x.clamp(min=0.0)
    yield lambda x: x.clamp(0.0, 1.0)
    yield lambda x: x**2
    yield lambda x: x**3
    yield lambda x: x**0.5
    for number in (2, 0.5):
        yield lambda x, n=number: x + n
        yield lambda x, n=number: x - n
        yield lambda x, n=number: n - x
        yield lambda x, n=number: x * n
        yield lambda x, n=number: x / n
        yield lambda x, n=number: n / x
        for name in COMPARISONS:
            yield lambda x, n=number, name=name: getattr(torch, name)(x, n)
    yield lambda x: x.masked_fill(x.detach() > 0, 0.0)
    yield lambda x: x.masked_fill(x.detach() > 0, float("-inf"))
    yield lambda x: torch.where(x.detach() > 0, x, x * 2)
    yield lambda x: x.clone()
    yield lambda x: x.contiguous()
    yield lambda x: x.double()
    yield lambda x: x.norm()
    yield lambda x: (x.detach() > 0).float()
    yield lambda x: (x.detach() > 0).sum()
    yield lambda x: x.detach().argmax()


def _pairs(make: Make, data: Make, shape: tuple[int, ...]) -> None:
    x, y = make(*shape), data(*shape)
    one = (1,) * len(shape)
    others = [y, data(shape[-1]), data(*shape[:-1], 1), data(*one[:-1], shape[-1]), data()]
    others += [data(1, *shape[1:])] if len(shape) > 1 else []
    for name in BINARY:
        for other in others:
            getattr(torch, name)(x, other)
            getattr(torch, name)(other, x)
    for name in COMPARISONS:
        getattr(torch, name)(x, y)
    torch.lerp(x, y, 0.5)
    F.mse_loss(x, y)
    F.mse_loss(x, y.detach())
    F.l1_loss(x, y.detach())
    F.smooth_l1_loss(x, y.detach())
    F.binary_cross_entropy_with_logits(x, (y.detach() > 0).float())


def _folds(make: Make, shape: tuple[int, ...]) -> None:
    x = make(*shape)
    for name in FOLDS:
        fold = getattr(torch, name)
        if name not in ("logsumexp",):
            fold(x)
        for axis in range(-len(shape), len(shape)):
            fold(x, axis)
            fold(x, axis, keepdim=True)
    if len(shape) > 2:
        for axes in ((-1, -2), (2, 3)):
            if len(shape) + min(axes) >= 0 and max(axes) < len(shape):
                x.sum(axes)
                x.mean(axes)
    for axis in range(-len(shape), len(shape)):
        F.softmax(x, axis)
        F.log_softmax(x, axis)
        x.detach().argmax(axis)
        x.max(axis)
        x.cumsum(axis)
        F.normalize(x, dim=axis)
        torch.norm(x, dim=axis)


def _layers(make: Make, data: Make, b: int, t: int, c: int, d: int) -> None:
    for lead in ((), (b,), (b, t), (b, t, 3)):
        x, w = data(*lead, c), make(d, c)
        F.linear(x, w)
        F.linear(x, w, make(d))
        F.layer_norm(x, (c,), make(c), make(c))
        F.layer_norm(x, (c,))
        F.rms_norm(x, (c,), make(c))
    x, y = data(b, t, c), make(b, c, d)
    x @ y, data(t, c) @ make(c, d), data(t, c) @ make(c), data(c) @ make(c)
    data(b, 2, t, c) @ make(b, 2, c, d)
    torch.bmm(x, y), torch.baddbmm(make(b, t, d), x, y), torch.addmm(make(d), x[0], y[0])
    torch.einsum("bi,bj->ij", data(b, c), make(b, d))
    q, k, v = (make(b, 2, t, 8) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v)
    F.scaled_dot_product_attention(q, k, v, is_causal=True)
    z = data(b, t, 48 * (t - 3) // 2)  # its width is a multiple of all numbers of heads
    for heads in (1, 2, 3, 4, 6, 8, 12, 16):
        for first in (True, False):
            attention = nn.MultiheadAttention(z.shape[-1], heads, batch_first=first)
            attention.requires_grad_(make(1).requires_grad)
            attention(z, z, z, need_weights=False)
    at = torch.arange(t) % 4
    F.embedding(at, make(d, c)), F.embedding(at.expand(b, t), make(d, c))
    make(d, c)[at], make(d, c).index_select(0, at)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        kind(c, d, batch_first=True)(data(b, t, c))
        kind(c, d)(data(t, b, c))
    nn.LSTMCell(c, d)(data(b, c)), nn.GRUCell(c, d)(data(b, c)), nn.RNNCell(c, d)(data(b, c))


def _images(make: Make, data: Make, b: int, n: int, c: int, d: int) -> None:
    for rank, conv in ((1, F.conv1d), (2, F.conv2d)):
        space = (n + 4,) * rank
        for kernel, stride, padding in ((1, 1, 0), (3, 1, 0), (3, 1, 1), (3, 2, 1), (5, 1, 2)):
            for channels in (c, 1):
                w = make(d, channels, *(kernel,) * rank)
                conv(data(b, channels, *space), w, None, stride, padding)
                conv(data(b, channels, *space), w, make(d), stride, padding)
        norm = nn.BatchNorm1d(c) if rank == 1 else nn.BatchNorm2d(c)
        norm(data(b, c, *space))
        norm.eval()(data(b, c, *space))
    nn.BatchNorm1d(c)(data(b, c))
    F.conv2d(data(b, 3, 16, 16), make(d, 3, 7, 7), None, 2, 3)
    F.conv2d(data(b, c, 9, 9), make(c, 1, 3, 3), None, 1, 1, 1, c)
    F.group_norm(data(b, 8, n, n), 4, make(8), make(8))
    for size in (2 * n, 2 * n + 1):
        x = data(b, c, size, size)
        F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)
        F.adaptive_avg_pool2d(x, 1), F.interpolate(x, scale_factor=2)
        x.flatten(1), x.reshape(b, -1), x.transpose(1, 2).reshape(b, -1)


def _losses(make: Make, b: int, t: int, c: int, d: int) -> None:
    targets, rows = torch.arange(b) % 4, torch.arange(b * t) % 4
    F.cross_entropy(make(b, c), targets), F.cross_entropy(make(b * t, c), rows)
    F.cross_entropy(make(b, c, t), rows.reshape(b, t))
    F.nll_loss(F.log_softmax(make(b, c), 1), targets)
    F.kl_div(F.log_softmax(make(b, c), 1), F.softmax(make(b, c).detach(), 1), reduction="batchmean")
    make(b, c).gather(1, targets[:, None])


def _shapes(make: Make, b: int, t: int, c: int, d: int) -> None:
    x = make(b, t, c)
    x.transpose(1, 2).contiguous(), x.permute(2, 0, 1).contiguous(), x.reshape(-1, c)
    x.repeat(2, 1, 1), x.flip(1), x.roll(1, 1), F.pad(x, (1, 1)), torch.tril(x)
    x.transpose(1, 2).reshape(b, -1), x.flatten(1), x[:, 0].contiguous(), x[:, -1].contiguous()
    y = make(b, 2, t, 4)
    y.transpose(1, 2).reshape(b, t, 8), y.transpose(1, 2).contiguous()
    torch.outer(make(t), make(c)), torch.tril(make(t, t)), torch.triu(make(t, t), 1)


def _updates(b: int, t: int, c: int, d: int) -> None:
    optim = torch.optim
    for make in (
        lambda ps: optim.SGD(ps, 0.1),
        lambda ps: optim.SGD(ps, 0.1, momentum=0.9),
        lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=5e-4),
        lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=1e-4),
        lambda ps: optim.Adam(ps),
        lambda ps: optim.AdamW(ps),
        lambda ps: optim.AdamW(ps, weight_decay=0.1, betas=(0.9, 0.95)),
        lambda ps: optim.RMSprop(ps),
        lambda ps: optim.Adagrad(ps),
    ):
        shapes = ((b,), (b, t), (b, t, c), (b, t, 3, 3), (b, t, 1, 1), (b, 1, 3, 3), (1,), (1, t))
        params = [nn.Parameter(torch.ones(s)) for s in shapes]
        updates = make(params)
        for p in params:
            p.grad = torch.ones(p.shape)
        updates.step()
        updates.step()


def _derivatives(make: Make, b: int, t: int, c: int, d: int) -> None:
    """Derivatives of gradients: of networks by their inputs and weights, and of single calls."""
    elementwise = [lambda x, name=name: getattr(F, name)(x) for name in ACTIVATIONS]
    elementwise += [lambda x, name=name: getattr(torch, name)(x) for name in DERIVED]
    elementwise += [lambda x: x**2, lambda x: x**3, lambda x: x * 2, lambda x: x + 1, lambda x: -x]
    for shape in ((b,), (b, t), (b, t, c)):
        for call in elementwise:
            _twice(call, make(*shape))
        for name in BINARY[:4]:
            for other in ((shape), (1,) * len(shape), (*shape[:-1], 1), (1, *shape[1:]), ()):
                _twice(getattr(torch, name), make(*shape), make(*other))
        for fold in (torch.sum, torch.mean):
            for axis in (None, *range(-len(shape), 0)):
                _twice(lambda x, fold=fold, axis=axis: fold(x, axis), make(*shape))
        _twice(lambda x: F.softmax(x, -1), make(*shape))
        _twice(lambda x: x.norm(2, dim=-1), make(*shape))
    for act in ACTIVATIONS:
        x, w, v = make(b, t), make(c, t), make(1, c)
        y, bias, end = make(b, 1), make(c), make(1)

        def network(*given: Any, act: str = act) -> Any:
            x, w, bias, v, end, y = given
            return F.mse_loss(F.linear(getattr(F, act)(F.linear(x, w, bias)), v, end), y.detach())

        _twice(network, x, w, bias, v, end, y)
        u = F.linear(getattr(F, act)(F.linear(torch.cat([x, y], 1), make(c, t + 1), bias)), v, end)
        (ux, uy) = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
        (uyy,) = torch.autograd.grad(uy.sum(), y, create_graph=True)
        ((u * uy - 0.1 * uyy).square().mean() + (ux.norm(2, dim=1) - 1).square().mean()).backward()
    _twice(lambda x, y: x @ y, make(b, t), make(t, c))
    _twice(lambda x, y: x @ y, make(b, t, c), make(b, c, d))
    _twice(lambda x: (x[:, None] - x[None]).pow(2).sum(-1).add(1e-3).sqrt(), make(b, t))
    _twice(lambda x: F.cross_entropy(x, torch.arange(b) % t), make(b, t))


DERIVED = ("exp", "log", "sqrt", "square", "sin", "cos", "tanh", "sigmoid", "relu", "reciprocal")


def _twice(call: Call, *operands: Any) -> None:
    """The derivative of a call, and the derivative of that."""
    wanted = [x for x in operands if x.requires_grad]
    for end in (lambda y: y.sum(), lambda y: y.square().mean()):
        found = torch.autograd.grad(
            end(call(*operands)), wanted, create_graph=True, allow_unused=True
        )
        parts = [g.square().sum() for g in found if g is not None and g.requires_grad]
        if parts:
            sum(parts).backward()


def make_all() -> None:
    """Make the calls."""
    elementwise = list(_elementwise())
    plain, tracked = _maker(False), _maker(True)
    for sizes in SIZES:
        for make, data in ((plain, plain), (tracked, tracked), (tracked, plain)):
            for rank in range(1, 5):
                shape = tuple(sizes[:rank])
                _pairs(make, data, shape)
                if make is data:
                    _folds(make, shape)
                    for call in elementwise:
                        call(make(*shape))
            _images(make, data, *sizes)
            for b in (sizes[0], 1):
                _layers(make, data, b, *sizes[1:])
                if make is data:
                    _losses(make, b, *sizes[1:])
                    _shapes(make, b, *sizes[1:])
        _updates(*sizes)
        _derivatives(tracked, *sizes)


def _maker(requires_grad: bool) -> Make:
    def make(*shape: int) -> Any:
        return torch.rand(shape).add_(0.5).requires_grad_(requires_grad)

    return make


def main() -> None:
    lessons.FILE.unlink(missing_ok=True)  # what is known needn't be learned
    tiers.mode = tiers.AUTO
    novelty.settle(at_once=True)
    make_all()
    found = {place: family.outlines() for place, family in epoch.families.items()}
    count = lessons.write({place: outlines for place, outlines in found.items() if outlines})
    print(f"{count} families of calls, {lessons.FILE.stat().st_size >> 10} KB: {lessons.FILE.name}")


if __name__ == "__main__":
    main()

"""Level 2: a product or convolution and the ops that follow it, in KernelBench's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .problem import (
    Building,
    Input,
    Layer,
    Problem,
    Shape,
    conv,
    conv_transpose,
    features,
    group_norm,
    image,
    layer,
    linear,
    norm,
    number,
    parameter,
    problem,
    uniform,
    weight,
)

Forward = Callable[..., Any]
_DOUBLING = {"stride": 2, "padding": 1, "output_padding": 1}


def _conv(
    name: str, sizes: Shape, out: int, kernel: Any, forward: Forward, **layers: Layer
) -> Problem:
    """A problem that begins with a convolution, which `forward` calls as `m.conv(x)`."""
    first = conv(len(sizes) - 2, out, kernel)
    return problem(f"conv{len(sizes) - 2}d, {name}", forward, image(*sizes), conv=first, **layers)


def _transposed(
    name: str,
    sizes: Shape,
    out: int,
    kernel: Any,
    forward: Forward,
    options: dict[str, Any],
    *more: Input,
    **layers: Layer,
) -> Problem:
    """As `_conv`, with a transposed convolution with `options`."""
    first = conv_transpose(len(sizes) - 2, out, kernel, **options)
    title = f"conv transpose{len(sizes) - 2}d, {name}"
    return problem(title, forward, image(*sizes), *more, conv=first, **layers)


def _linear(
    name: str, rows: int, row: int, out: int, forward: Forward, *more: Input, **layers: Layer
) -> Problem:
    """A problem that begins with a linear layer, which `forward` calls as `m.fc(x)`."""
    return problem(
        f"linear, {name}", forward, features(rows, row), *more, **{"fc": linear(out), **layers}
    )


def _doubled_image(*sizes: int) -> Input:
    """An image that is twice as long along each axis."""
    shape = image(*sizes).shape
    return Input(lambda scale: (*shape(scale)[:2], *(2 * n for n in shape(scale)[2:])), uniform)


def _last_norm(torch: Any, at: Building) -> Any:
    """A layer norm of the last axis, which the convolution before it has doubled."""
    return torch.nn.LayerNorm(2 * at.shape[-1])


def _matrix(torch: Any, at: Building) -> Any:
    return torch.nn.Parameter(torch.randn(at.now, at.now))


def _swish_product(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.norm(m.fc(x))
    x = x * t.sigmoid(x) * m.w
    return x * t.sigmoid(x)


def _spatial_softmax(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.clamp(m.conv(m.pool(x)), 0.0, 1.0)
    b, c, d, h, w = x.shape
    return t.softmax(x.view(b, c, -1), dim=2).view(b, c, d, h, w) * m.w


def _own_residuals(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.conv(x)
    first = x.clone().detach()
    return (x + m.w + first) * first + first


def _scaled_residual(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.fc(x)
    first = x.clone().detach()
    return x * 0.5 + first


def _sigmoid_residual(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.fc(x)
    return t.sigmoid(x) * 2.0 + x


def _mean_residual(t: Any, f: Any, m: Any, x: Any) -> Any:
    first = x.clone().detach()
    x = t.mean(m.fc(x) - m.w, dim=1, keepdim=True)
    return f.gelu(t.logsumexp(x, dim=1, keepdim=True)) + first


def _clamped_mish(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.fc(x) * 2.0
    x = t.logsumexp(t.clamp(x + x, -10.0, 10.0), dim=1, keepdim=True)
    return x * f.mish(x)


def _folds(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.sum(m.fc(x), dim=1, keepdim=True)
    x = t.mean(t.max(x, dim=1, keepdim=True)[0], dim=1, keepdim=True)
    return t.logsumexp(t.logsumexp(x, dim=1, keepdim=True), dim=1, keepdim=True)


def _gated_pair(t: Any, f: Any, m: Any, x: Any, y: Any) -> Any:
    x = m.norm(m.fc(x).unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)
    return (x + y) * y


def _centred_max(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.max(m.fc(x), dim=1, keepdim=True).values
    return f.gelu(x - x.mean(dim=1, keepdim=True))


def _swish(t: Any, x: Any) -> Any:
    return t.sigmoid(x) * x


def _doubled(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.relu(m.norm(m.fc(x)))
    return x + x


def _relu_hardswish(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.relu(m.conv(x))
    return x * t.clamp((x + 3) / 6, 0, 1)


def _mish_norm(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.conv(x)
    return m.norm(t.multiply(t.tanh(f.softplus(x)), x))


def _soft_hardswish(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.logsumexp(m.conv(x), dim=1, keepdim=True)
    return t.clamp(x * t.sigmoid(x + 3) / 6 - m.bias, min=-1, max=1)


def _centred_norm(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.norm(m.conv(x))
    return x - t.mean(x, dim=(2, 3, 4), keepdim=True)


def _clipped(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.norm(m.conv(x))
    x = t.min(x, t.tensor(0.0, device=x.device))
    return m.dropout(t.clamp(x, min=0.0, max=1.0))


def _residual_logsumexp(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = m.conv(x)
    return t.logsumexp(x + m.hardswish(m.tanh(m.norm(x))), dim=1, keepdim=True)


def _softmax_swish_max(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.softmax(m.pool(m.conv(x)), dim=1) - m.w.view(1, -1, 1, 1, 1)
    return t.max(_swish(t, x), dim=1)[0]


def _gated_hardswish(t: Any, f: Any, m: Any, x: Any, y: Any) -> Any:
    x = m.conv(x) + y
    return x * f.hardswish(x)


def _scaled_min(t: Any, f: Any, m: Any, x: Any) -> Any:
    x = t.min(m.conv(x) + 0.5, t.tensor(0.0, device=x.device))
    return f.gelu(x) * 2.0


PROBLEMS = [
    _conv("relu, bias", (128, 64, 128, 128), 128, 3,
          lambda t, f, m, x: t.relu(m.conv(x)) + m.w, w=weight(1, 1)),
    _transposed("bias, clamp, scale, clamp, divide", (128, 64, 128, 128), 64, 3,
                lambda t, f, m, x: t.clamp(
                    t.clamp(m.conv(x) + m.w, min=0.0, max=1.0) * 2.0, min=0.0, max=1.0) / 2.0,
                _DOUBLING, w=weight(1, 1)),
    _transposed("add, layer norm, avg pool, gelu", (32, 32, 16, 32, 32), 64, (3, 3, 3),
                lambda t, f, m, x: m.gelu(m.pool(m.norm(m.conv(x) + m.sum))), _DOUBLING,
                sum=number(1.0), norm=_last_norm, pool=layer("AvgPool3d", (2, 2, 2)),
                gelu=layer("GELU")),
    _conv("mish, mish", (64, 64, 256, 256), 128, 3,
          lambda t, f, m, x: f.mish(f.mish(m.conv(x)))),
    _transposed("subtract, tanh", (32, 64, 256, 256), 64, 4,
                lambda t, f, m, x: t.tanh(m.conv(x) - m.w), _DOUBLING, w=weight(1, 1)),
    _conv("softmax, max pool, max pool", (128, 3, 16, 32, 32), 16, 3,
          lambda t, f, m, x: m.pool2(m.pool1(t.softmax(m.conv(x), dim=1))),
          pool1=layer("MaxPool3d", 2), pool2=layer("MaxPool3d", 2)),
    _conv("relu, leaky relu, gelu, sigmoid, bias", (64, 8, 32, 64, 64), 32, 3,
          lambda t, f, m, x: t.sigmoid(
              f.gelu(f.leaky_relu(t.relu(m.conv(x)), negative_slope=0.01))) + m.w,
          w=weight(1, 1, 1)),
    _conv("divide, max pool, global avg pool, bias, sum", (128, 8, 16, 64, 64), 16, (3, 3, 3),
          lambda t, f, m, x: t.sum(m.mean(m.pool(m.conv(x) / 2.0)) + m.w, dim=1),
          pool=layer("MaxPool3d", (2, 2, 2)), mean=layer("AdaptiveAvgPool3d", (1, 1, 1)),
          w=weight(1, 1, 1)),
    _linear("subtract, multiply, relu", 1024, 8192, 8192,
            lambda t, f, m, x: t.relu((m.fc(x) - 2.0) * 1.5)),
    _transposed("max pool, hardtanh, mean, tanh", (128, 64, 256, 256), 64, 3,
                lambda t, f, m, x: t.tanh(
                    t.mean(m.clip(m.pool(m.conv(x))), dim=(2, 3), keepdim=True)),
                {"stride": 1, "padding": 1}, pool=layer("MaxPool2d", 2, stride=2),
                clip=layer("Hardtanh", min_val=-1, max_val=1)),
    _transposed("batch norm, tanh, max pool, group norm", (512, 64, 32, 32), 128, 5,
                lambda t, f, m, x: m.groups(m.pool(m.tanh(m.norm(m.conv(x))))),
                {"stride": 1, "padding": 1}, norm=norm("BatchNorm2d"), tanh=layer("Tanh"),
                pool=layer("MaxPool2d", 2, stride=2), groups=group_norm(8)),
    _linear("multiply, leaky relu", 1024, 8192, 8192,
            lambda t, f, m, x: m.relu(m.fc(x) * 2.0), relu=layer("LeakyReLU", 0.1)),
    _transposed("mean, bias, softmax, tanh, scale", (16, 16, 32, 128, 128), 64, 3,
                lambda t, f, m, x: t.tanh(t.softmax(
                    m.conv(x).mean(dim=2, keepdim=True) + m.w, dim=1)) * 2.0,
                {"stride": 1, "padding": 1}, w=weight(1, 1, 1)),
    problem("matmul, divide, sum, scale",
            lambda t, f, m, x: t.sum(t.matmul(x, m.w.T) / 2, dim=1, keepdim=True) * 1.5,
            features(1024, 8192), w=_matrix),
    _transposed("batch norm, subtract mean", (16, 16, 16, 32, 32), 32, 3, _centred_norm,
                {"stride": 2, "padding": 1}, norm=norm("BatchNorm3d")),
    _transposed("mish, add, hardtanh, scale", (128, 64, 128, 128), 64, 3,
                lambda t, f, m, x: f.hardtanh(
                    f.mish(m.conv(x)) + 0.5, min_val=-1, max_val=1) * 2, _DOUBLING),
    _conv("instance norm, divide", (128, 64, 128, 128), 128, 3,
          lambda t, f, m, x: m.norm(m.conv(x)) / 2.0, norm=norm("InstanceNorm2d")),
    _linear("sum, max, mean, logsumexp, logsumexp", 1024, 8192, 8192, _folds),
    _transposed("gelu, group norm", (128, 64, 256, 256), 64, 3,
                lambda t, f, m, x: m.norm(f.gelu(m.conv(x))), {"stride": 1},
                norm=group_norm(8)),
    _transposed("sum, residual, multiply, residual", (16, 32, 16, 32, 32), 64, 3,
                _own_residuals, _DOUBLING, w=weight(1, 1, 1)),
    _conv("bias, scale, sigmoid, group norm", (128, 8, 256, 256), 32, 3,
          lambda t, f, m, x: m.norm(t.sigmoid((m.conv(x) + m.b) * m.w)),
          b=weight(1, 1), w=weight(1, 1), norm=group_norm(8)),
    _linear("scale, double, clamp, logsumexp, mish", 1024, 8192, 8192, _clamped_mish),
    _conv("group norm, mean", (128, 3, 24, 32, 32), 24, 3,
          lambda t, f, m, x: m.norm(m.conv(x)).mean(dim=[1, 2, 3, 4]), norm=group_norm(8)),
    _conv("min, softmax", (128, 3, 24, 32, 32), 24, 3,
          lambda t, f, m, x: t.softmax(t.min(m.conv(x), dim=2)[0], dim=1)),
    _conv("min, tanh, tanh", (128, 16, 256, 256), 64, 3,
          lambda t, f, m, x: t.tanh(t.tanh(t.min(m.conv(x), dim=1, keepdim=True)[0]))),
    _transposed("add, hardswish", (128, 32, 16, 16, 16), 64, 3, _gated_hardswish, _DOUBLING,
                _doubled_image(128, 64, 16, 16, 16)),
    _conv("hardswish, group norm, mean", (1024, 3, 16, 32, 32), 16, 4,
          lambda t, f, m, x: t.mean(m.norm(f.hardswish(m.conv(x))), dim=[2, 3, 4]),
          norm=group_norm(4)),
    _linear("instance norm, residual, multiply", 1024, 8192, 8192, _gated_pair,
            features(1024, 8192), norm=norm("InstanceNorm2d")),
    _linear("mish, mish", 1024, 8192, 8192, lambda t, f, m, x: f.mish(f.mish(m.fc(x)))),
    _linear("group norm, hardtanh", 1024, 8192, 8192,
            lambda t, f, m, x: m.clip(m.norm(m.fc(x))), norm=group_norm(16),
            clip=layer("Hardtanh", min_val=-2.0, max_val=2.0)),
    _conv("min with a number, bias, scale", (128, 64, 128, 128), 128, 3,
          lambda t, f, m, x: (t.min(m.conv(x), t.tensor(0.5)) + m.w) * 2.0, w=weight(1, 1)),
    _conv("scale, min", (64, 64, 256, 256), 128, 3,
          lambda t, f, m, x: t.min(m.conv(x) * 2.0, dim=1, keepdim=True)[0]),
    _linear("scale, batch norm", 1024, 8192, 8192, lambda t, f, m, x: m.norm(m.fc(x) * m.w),
            w=weight(), norm=norm("BatchNorm1d", eps=1e-5, momentum=0.1)),
    _transposed("layer norm, gelu, scale", (32, 32, 16, 32, 32), 64, 4,
                lambda t, f, m, x: f.gelu(m.norm(m.conv(x))) * 1.0,
                {"stride": 2, "padding": 1}, norm=_last_norm),
    _conv("subtract, hardswish, max pool, mish", (128, 64, 128, 128), 128, 3,
          lambda t, f, m, x: f.mish(m.pool(f.hardswish(m.conv(x) - 0.5))),
          pool=layer("MaxPool2d", 2)),
    _transposed("min, sum, gelu, add", (16, 64, 128, 128), 128, 3,
                lambda t, f, m, x: f.gelu(t.sum(
                    t.min(m.conv(x), dim=1, keepdim=True)[0], dim=2, keepdim=True)) + m.bias,
                _DOUBLING, bias=parameter(1, 1, 1)),
    _linear("swish, bias, group norm", 32768, 1024, 4096,
            lambda t, f, m, x: m.norm(_swish(t, m.fc(x)) + m.w), w=weight(),
            norm=group_norm(64)),
    _transposed("avg pool before, clamp, softmax, multiply", (32, 32, 32, 64, 64), 64, 3,
                _spatial_softmax, _DOUBLING, pool=layer("AvgPool3d", 2), w=weight(1, 1, 1)),
    _linear("scale, batch norm, many rows", 16384, 4096, 4096,
            lambda t, f, m, x: m.norm(m.fc(x) * m.w), w=weight(), norm=norm("BatchNorm1d")),
    _linear("scale, residual", 16384, 4096, 4096, _scaled_residual),
    _linear("batch norm, gelu, relu", 16384, 4096, 4096,
            lambda t, f, m, x: t.relu(f.gelu(m.norm(m.fc(x)))), norm=norm("BatchNorm1d")),
    _transposed("global mean, bias, logsumexp, sum, multiply", (16, 64, 512, 512), 128, 3,
                lambda t, f, m, x: t.sum(t.logsumexp(
                    t.mean(m.conv(x), dim=(2, 3), keepdim=True) + m.w, dim=1, keepdim=True),
                    dim=(2, 3)) * 10.0,
                {}, w=weight(1, 1)),
    problem("conv3d, max pool, logsumexp, relu",
            lambda t, f, m, x: t.relu(t.logsumexp(m.pool(m.conv(x)), dim=1, keepdim=True)),
            image(4, 32, 32, 128, 128), conv=conv(3, 64, 3, stride=1, padding=1),
            pool=layer("MaxPool3d", kernel_size=2, stride=2)),
    _transposed("multiply, global mean, global mean", (16, 64, 128, 128), 128, 3,
                lambda t, f, m, x: t.mean(
                    t.mean(m.conv(x) * 0.5, dim=[2, 3], keepdim=True), dim=[2, 3], keepdim=True),
                _DOUBLING),
    _linear("sigmoid, linear, logsumexp", 16384, 2048, 4096,
            lambda t, f, m, x: t.logsumexp(m.second(t.sigmoid(m.fc(x))), dim=1),
            second=linear(1024)),
    _conv("subtract, tanh, subtract, avg pool", (128, 64, 128, 128), 128, 3,
          lambda t, f, m, x: m.pool(t.tanh(m.conv(x) - 0.5) - 0.2), pool=layer("AvgPool2d", 2)),
    _conv("mish, tanh", (16, 32, 32, 64, 64), 64, 3,
          lambda t, f, m, x: t.tanh(f.mish(m.conv(x)))),
    _conv("scale, tanh, multiply, sigmoid", (128, 3, 16, 64, 64), 16, 3,
          lambda t, f, m, x: t.sigmoid(t.tanh(m.conv(x) * m.w) * m.b),
          w=weight(1, 1, 1), b=weight(1, 1, 1)),
    _transposed("softmax, sigmoid", (16, 32, 16, 32, 32), 64, 3,
                lambda t, f, m, x: m.sigmoid(m.softmax(m.conv(x))), _DOUBLING,
                softmax=layer("Softmax", dim=1), sigmoid=layer("Sigmoid")),
    _transposed("scale, avg pool, bias, scale", (128, 3, 16, 32, 32), 16, 3,
                lambda t, f, m, x: (m.pool(m.conv(x) * m.first) + m.w) * m.second,
                {"stride": 2, "padding": 1}, first=number(0.5), second=number(1.0),
                pool=layer("AvgPool3d", kernel_size=2), w=weight(1, 1, 1)),
    _linear("subtract, mean, logsumexp, gelu, residual", 2048, 8192, 8192, _mean_residual,
            w=weight()),
    _conv("mish written out, batch norm", (64, 64, 128, 128), 128, 3, _mish_norm,
          norm=norm("BatchNorm2d")),
    _linear("scale, hardtanh, gelu", 2048, 8192, 8192,
            lambda t, f, m, x: m.gelu(m.clip(m.fc(x) * 0.5)),
            clip=layer("Hardtanh", min_val=-2, max_val=2), gelu=layer("GELU")),
    _conv("multiply, leaky relu, gelu", (64, 64, 256, 256), 64, 3,
          lambda t, f, m, x: f.gelu(m.relu(m.conv(x) * m.w)), w=weight(1, 1),
          relu=layer("LeakyReLU")),
    _linear("max pool, sum, scale", 128, 32768, 32768,
            lambda t, f, m, x: t.sum(m.pool(m.fc(x).unsqueeze(1)).squeeze(1), dim=1) * 0.5,
            pool=layer("MaxPool1d", 2)),
    _linear("sigmoid, sum", 128, 32768, 32768,
            lambda t, f, m, x: t.sum(t.sigmoid(m.fc(x)), dim=1, keepdim=True)),
    _conv("relu, hardswish", (128, 8, 128, 128), 64, 3, _relu_hardswish),
    _transposed("logsumexp, swish of x + 3, subtract, clamp", (128, 3, 16, 32, 32), 16, 3,
                _soft_hardswish, {"stride": 2, "padding": 1}, bias=parameter(1, 1, 1, 1)),
    _linear("swish, scale", 128, 32768, 32768, lambda t, f, m, x: _swish(t, m.fc(x)) * 2.0),
    _transposed("swish, group norm, hardswish", (128, 3, 16, 32, 32), 16, 3,
                lambda t, f, m, x: f.hardswish(m.norm(_swish(t, m.conv(x)))),
                {"stride": 2, "padding": 1}, norm=group_norm(4)),
    _transposed("relu, group norm", (16, 64, 32, 32, 32), 128, 3,
                lambda t, f, m, x: m.norm(m.relu(m.conv(x))), {"bias": False},
                relu=layer("ReLU"), norm=group_norm(8)),
    _linear("group norm, leaky relu, double", 1024, 8192, 8192,
            _doubled, norm=group_norm(512),
            relu=layer("LeakyReLU", negative_slope=0.01)),
    _linear("relu, divide", 1024, 8192, 8192, lambda t, f, m, x: t.relu(m.fc(x)) / 2.0),
    _linear("logsumexp, leaky relu twice, gelu twice", 1024, 8192, 8192,
            lambda t, f, m, x: f.gelu(f.gelu(f.leaky_relu(f.leaky_relu(
                t.logsumexp(m.fc(x), dim=1, keepdim=True), negative_slope=0.01),
                negative_slope=0.01)))),
    _conv("avg pool, sigmoid, sum", (128, 8, 384, 384), 64, 3,
          lambda t, f, m, x: t.sum(t.sigmoid(m.pool(m.conv(x))), dim=[1, 2, 3]),
          pool=layer("AvgPool2d", 4)),
    _linear("dropout, softmax", 128, 16384, 16384,
            lambda t, f, m, x: t.softmax(m.dropout(m.fc(x)), dim=1),
            dropout=layer("Dropout", 0.2)),
    _conv("gelu, global avg pool", (128, 8, 256, 256), 64, 3,
          lambda t, f, m, x: f.adaptive_avg_pool2d(
              f.gelu(m.conv(x)), 1).squeeze(-1).squeeze(-1)),
    _linear("min with a parameter, subtract", 128, 16384, 16384,
            lambda t, f, m, x: t.min(m.fc(x), m.c) - m.c, c=number(2.0)),
    _conv("hardswish, relu", (128, 8, 128, 128), 64, 3,
          lambda t, f, m, x: t.relu(f.hardswish(m.conv(x)))),
    _linear("sigmoid, scale, residual", 1024, 8192, 8192, _sigmoid_residual),
    _conv("divide, leaky relu", (128, 8, 128, 128), 64, 3,
          lambda t, f, m, x: f.leaky_relu(m.conv(x) / 2, negative_slope=0.01)),
    _transposed("batch norm, avg pool, avg pool", (64, 3, 32, 32, 32), 16, 3,
                lambda t, f, m, x: m.pool2(m.pool1(m.norm(m.conv(x)))),
                {"stride": 2, "padding": 1}, norm=norm("BatchNorm3d"),
                pool1=layer("AvgPool3d", kernel_size=2), pool2=layer("AvgPool3d", kernel_size=2)),
    _conv("batch norm, scale", (128, 8, 128, 128), 64, 3,
          lambda t, f, m, x: m.norm(m.conv(x)) * 2.0, norm=norm("BatchNorm2d")),
    _transposed("leaky relu, multiply, leaky relu, max pool", (16, 16, 16, 32, 32), 32, 3,
                lambda t, f, m, x: m.pool(m.relu(m.relu(m.conv(x)) * m.w)), _DOUBLING,
                w=weight(1, 1, 1), relu=layer("LeakyReLU", negative_slope=0.2),
                pool=layer("MaxPool3d", kernel_size=2)),
    _linear("group norm, min, bias", 1024, 8192, 8192,
            lambda t, f, m, x: t.min(m.norm(m.fc(x)), dim=1, keepdim=True)[0] + m.w[None],
            norm=group_norm(512), w=weight(1, 1)),
    _linear("bias, relu", 1024, 8192, 8192, lambda t, f, m, x: t.relu(m.fc(x) + m.w),
            fc=linear(8192, bias=False), w=weight()),
    _transposed("scale, batch norm, global avg pool", (16, 64, 16, 32, 32), 128, 5,
                lambda t, f, m, x: m.mean(m.norm(m.conv(x) * 2.0)), {},
                norm=norm("BatchNorm3d"), mean=layer("AdaptiveAvgPool3d", (1, 1, 1))),
    _transposed("max pool, max pool, sum", (16, 32, 32, 32, 32), 64, 5,
                lambda t, f, m, x: t.sum(m.pool2(m.pool1(m.conv(x))), dim=1, keepdim=True),
                {"stride": 2, "padding": 2}, pool1=layer("MaxPool3d", kernel_size=2),
                pool2=layer("MaxPool3d", kernel_size=3)),
    _conv("multiply, instance norm, clamp, multiply, max", (128, 3, 16, 32, 32), 16, 3,
          lambda t, f, m, x: t.max(
              t.clamp(m.norm(m.conv(x) * m.w), -1.0, 1.0) * m.w, dim=1)[0],
          w=weight(1, 1, 1), norm=norm("InstanceNorm3d")),
    _linear("max, subtract mean, gelu", 1024, 8192, 8192, _centred_max),
    _linear("swish, divide, clamp, tanh, clamp", 1024, 8192, 8192,
            lambda t, f, m, x: t.clamp(t.tanh(t.clamp(
                _swish(t, m.fc(x)) / 2.0, min=-1.0, max=1.0)), min=-1.0, max=1.0)),
    _conv("tanh, scale, bias, max pool", (128, 8, 256, 256), 64, 3,
          lambda t, f, m, x: m.pool(t.tanh(m.conv(x)) * 2.0 + m.w), w=weight(1, 1),
          pool=layer("MaxPool2d", 4)),
    _conv("group norm, min, clamp, dropout", (128, 3, 16, 64, 64), 16, 3, _clipped,
          norm=group_norm(8), dropout=layer("Dropout", 0.2)),
    _linear("batch norm, scale, softmax", 1024, 8192, 8192,
            lambda t, f, m, x: m.softmax(m.w * m.norm(m.fc(x))),
            norm=norm("BatchNorm1d", eps=1e-5, momentum=0.1), w=parameter(1),
            softmax=layer("Softmax", dim=1)),
    _conv("group norm, scale, max pool, clamp", (128, 8, 128, 128), 64, 3,
          lambda t, f, m, x: t.clamp(m.pool(m.norm(m.conv(x)) * m.w), 0.0, 1.0),
          norm=group_norm(16), w=weight(1, 1), pool=layer("MaxPool2d", kernel_size=4)),
    _linear("divide, gelu", 1024, 8192, 8192, lambda t, f, m, x: f.gelu(m.fc(x) / 10.0)),
    _conv("subtract, subtract, mish", (128, 8, 256, 256), 64, 3,
          lambda t, f, m, x: f.mish(m.conv(x) - 0.5 - 0.2)),
    _linear("group norm, swish, multiply, swish", 1024, 8192, 8192, _swish_product,
            norm=group_norm(256), w=weight()),
    _transposed("max pool, softmax, subtract, swish, max", (128, 3, 16, 32, 32), 16, 3,
                _softmax_swish_max, _DOUBLING, w=weight(),
                pool=layer("MaxPool3d", kernel_size=2, stride=2, padding=0)),
    _conv("leaky relu, sum, clamp, gelu", (128, 8, 16, 64, 64), 64, 3,
          lambda t, f, m, x: f.gelu(t.clamp(
              f.leaky_relu(m.conv(x), negative_slope=0.2) + m.w, min=-1.0, max=1.0)),
          w=weight(1, 1, 1)),
    _transposed("softmax, bias, scale, sigmoid", (128, 64, 64, 64), 128, 4,
                lambda t, f, m, x: t.sigmoid((t.softmax(m.conv(x), dim=1) + m.w) * 2.0),
                _DOUBLING, w=weight(1, 1)),
    _conv("group norm, tanh, hardswish, residual, logsumexp", (128, 8, 128, 128), 64, 3,
          _residual_logsumexp, norm=group_norm(16), tanh=layer("Tanh"),
          hardswish=layer("Hardswish")),
    _transposed("add, min, gelu, multiply", (128, 64, 64, 64), 128, 4, _scaled_min,
                {"stride": 2}),
    _linear("bias, hardtanh, mish, group norm", 1024, 8192, 8192,
            lambda t, f, m, x: m.norm(m.mish(m.clip(m.fc(x) + m.w))), w=weight(),
            clip=layer("Hardtanh"), mish=layer("Mish"), norm=group_norm(256)),
    _linear("add, swish, tanh, gelu, hardtanh", 1024, 8192, 8192,
            lambda t, f, m, x: f.hardtanh(
                f.gelu(t.tanh(_swish(t, m.fc(x) + m.w))), min_val=-1, max_val=1), w=weight()),
    _transposed("scale, max pool, global avg pool, clamp", (128, 3, 16, 32, 32), 16, 3,
                lambda t, f, m, x: t.clamp(m.mean(m.pool(m.conv(x) * 0.5)), min=0, max=1),
                {"stride": 2, "padding": 1}, pool=layer("MaxPool3d", kernel_size=2),
                mean=layer("AdaptiveAvgPool3d", (1, 1, 1))),
    _linear("batch norm, bias, divide, swish", 1024, 8192, 8192,
            lambda t, f, m, x: _swish(t, (m.norm(m.fc(x)) + m.b) / 1.0),
            norm=norm("BatchNorm1d"), b=parameter(1)),
    _linear("avg pool, gelu, scale, max", 1024, 8192, 8192,
            lambda t, f, m, x: t.max(
                f.gelu(m.pool(m.fc(x).unsqueeze(1)).squeeze(1)) * 2.0, dim=1).values,
            pool=layer("AvgPool1d", kernel_size=16)),
    _linear("gelu, softmax", 1024, 8192, 8192,
            lambda t, f, m, x: f.softmax(f.gelu(m.fc(x)), dim=1)),
    _transposed("clamp, divide", (16, 64, 24, 48, 48), 128, 3,
                lambda t, f, m, x: t.clamp(m.conv(x), min=-1.0) / 2.0,
                {"stride": 2, "padding": 1}),
]  # fmt: skip

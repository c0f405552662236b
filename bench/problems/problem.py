"""Problems: a forward function, its inputs and its layers.

A problem is written once for any framework, with its full sizes. A `Scale` makes it smaller: it
halves sizes of each kind until none exceeds the scale's limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Scale(NamedTuple):
    """The limit for each kind of size.

    batch, channels: of images. axes: an axis of images of 1, 2 and 3 dimensions. rows, row: number
    and length of the rows of matrices that are read once. features: of linear layers. product:
    multiplications of a matrix product; an operand has at most an eighth as many elements.
    """

    batch: int
    channels: int
    axes: Shape
    rows: int
    row: int
    features: int
    product: int


_ANY = 1 << 62
FULL = Scale(_ANY, _ANY, (_ANY,) * 3, _ANY, _ANY, _ANY, _ANY)
REDUCED = Scale(4, 32, (4096, 64, 16), 512, 4096, 512, 1 << 27)
SMALL = Scale(2, 16, (64, 32, 16), 8, 128, 64, 1 << 12)


def halved(size: int, most: int) -> int:
    """`size`, halved until it is at most `most`. Odd sizes stay odd."""
    while size > most:
        size = _half(size)
    return size


def _half(size: int) -> int:
    return size // 2 | size & 1


BLOCK = 1 << 22
"""The most numbers that are drawn. Larger tensors repeat them, on the device."""


class Source:
    """Draws numbers that are the same in every framework and on every device."""

    def __init__(self, torch: Any, device: str, seed: int = 0):
        self.torch, self.device = torch, device
        self.rng = np.random.default_rng(seed)

    def repeated(self, drawn: Callable[[int], np.ndarray], shape: Shape) -> Any:
        """A tensor that repeats drawn(count)."""
        count = math.prod(shape)
        block = self.torch.tensor(drawn(min(count, BLOCK))).to(self.device)
        if count > BLOCK:
            block = block.repeat(-(-count // BLOCK))[:count]
        return block.reshape(shape)

    def uniform(self, shape: Shape) -> Any:
        """float32 in [0, 1)."""
        return self.repeated(lambda n: self.rng.random(n, dtype=np.float32), shape)

    def normal(self, shape: Shape) -> Any:
        return self.repeated(lambda n: self.rng.standard_normal(n, dtype=np.float32), shape)

    def integers(self, high: int, shape: Shape) -> Any:
        return self.repeated(lambda n: self.rng.integers(0, high, n), shape)

    def filled(self, model: Any) -> Any:
        """`model` on the device, with parameters within ±1 / sqrt(elements of a row)."""
        model = model.to(self.device)
        with self.torch.no_grad():
            for value in model.parameters():
                shape = tuple(value.shape)
                if shape:
                    bound = math.prod(shape[1:]) ** -0.5
                    value.copy_((self.uniform(shape) * 2 - 1) * bound)
        return model


Draw = Callable[[Source, Shape], Any]
uniform: Draw = Source.uniform
normal: Draw = Source.normal


@dataclass(frozen=True)
class Input:
    """An input tensor of a problem. shape(scale) -> sizes. draw(source, sizes) -> the tensor, in
    float32 unless `draw` chooses another dtype."""

    shape: Callable[[Scale], Shape]
    draw: Draw


def image(*sizes: int, draw: Draw = uniform) -> Input:
    """An image with batch, channels, and one to three axes."""

    def shape(scale: Scale) -> Shape:
        batch, channels, *axes = sizes
        most = scale.axes[len(axes) - 1]
        return (
            halved(batch, scale.batch),
            halved(channels, scale.channels),
            *(halved(n, most) for n in axes),
        )

    return Input(shape, draw)


def matrix(rows: int, row: int, draw: Draw = uniform) -> Input:
    return Input(lambda scale: (halved(rows, scale.rows), halved(row, scale.row)), draw)


def columns(row: int, draw: Draw = uniform) -> Input:
    """A vector with an element for each column of a matrix."""
    return Input(lambda scale: (halved(row, scale.row),), draw)


def cube(batch: int, rows: int, row: int) -> Input:
    """Matrices that are reduced along their rows or columns."""

    def shape(scale: Scale) -> Shape:
        most = min(scale.rows, scale.row)
        return halved(batch, scale.batch), halved(rows, most), halved(row, most)

    return Input(shape, uniform)


def features(rows: int, row: int) -> Input:
    """The input of a linear layer."""
    return Input(lambda scale: (halved(rows, scale.rows), halved(row, scale.features)), uniform)


def diagonal(size: int) -> Input:
    """A vector with an element for each row of a matrix."""
    return Input(lambda scale: (halved(size, scale.rows),), uniform)


def product(operands: str, draw: Draw = uniform, **sizes: int) -> tuple[Input, ...]:
    """The operands of a matrix product, named by letters as in einsum: "mk kn" for m, k and n.

    The largest sizes are halved first, so a long product becomes short last.
    """

    def shape(operand: str) -> Callable[[Scale], Shape]:
        def scaled(scale: Scale) -> Shape:
            now = dict(sizes)

            def too_large() -> bool:
                elements = max(math.prod(now[i] for i in each) for each in operands.split())
                return math.prod(now.values()) > scale.product or elements > scale.product // 8

            while too_large():
                longest = max(now, key=lambda name: now[name])
                now[longest] = _half(now[longest])
            return tuple(now[i] for i in operand)

        return scaled

    return tuple(Input(shape(operand), draw) for operand in operands.split())


@dataclass
class Building:
    """The state while a model is built. full: the channels or features of the problem; now: those
    at this scale. shape: of the first input."""

    scale: Scale
    full: int
    now: int
    shape: Shape

    def part(self, count: int) -> int:
        """The number of groups at this scale, of `count` groups of channels at full size. Groups
        keep their size."""
        return max(1, count * self.now // self.full)


Layer = Callable[[Any, Building], Any]
"""layer(torch, building) -> a module or a parameter."""


def conv(dimensions: int, out: int, kernel: Any, groups: int = 1, **options: Any) -> Layer:
    return _convolution(f"Conv{dimensions}d", out, kernel, groups, options)


def conv_transpose(
    dimensions: int, out: int, kernel: Any, groups: int = 1, **options: Any
) -> Layer:
    return _convolution(f"ConvTranspose{dimensions}d", out, kernel, groups, options)


def _convolution(
    name: str, out: int, kernel: Any, groups: int, options: Mapping[str, Any]
) -> Layer:
    def build(torch: Any, at: Building) -> Any:
        before, groups_now = at.now, at.part(groups)
        at.full, at.now = out, halved(out, at.scale.channels)
        return getattr(torch.nn, name)(before, at.now, kernel, groups=groups_now, **options)

    return build


def linear(out: int, **options: Any) -> Layer:
    def build(torch: Any, at: Building) -> Any:
        before = at.now
        at.full, at.now = out, halved(out, at.scale.features)
        return torch.nn.Linear(before, at.now, **options)

    return build


def layer(name: str, *args: Any, **options: Any) -> Layer:
    """A module without sizes of its own."""
    return lambda torch, at: getattr(torch.nn, name)(*args, **options)


def norm(name: str, **options: Any) -> Layer:
    """A normalization of each channel: BatchNorm2d, InstanceNorm3d, …"""
    return lambda torch, at: getattr(torch.nn, name)(at.now, **options)


def group_norm(groups: int) -> Layer:
    return lambda torch, at: torch.nn.GroupNorm(at.part(groups), at.now)


def weight(*ones: int) -> Layer:
    """A parameter with an element for each channel, and the given further axes."""
    return lambda torch, at: torch.nn.Parameter(torch.randn((at.now, *ones)))


def parameter(*shape: int) -> Layer:
    return lambda torch, at: torch.nn.Parameter(torch.randn(shape))


def number(value: float) -> Layer:
    """A parameter that is one number."""
    return lambda torch, at: torch.nn.Parameter(torch.tensor(value))


@dataclass(frozen=True)
class Problem:
    """forward(torch, functional, model, *inputs) -> a tensor."""

    name: str
    forward: Callable[..., Any]
    inputs: tuple[Input, ...]
    layers: Mapping[str, Layer] = field(default_factory=dict)

    def shapes(self, scale: Scale) -> list[Shape]:
        return [each.shape(scale) for each in self.inputs]

    def draw(self, torch: Any, scale: Scale, device: str = "cpu") -> list[Any]:
        """The inputs."""
        source = Source(torch, device)
        return [each.draw(source, each.shape(scale)) for each in self.inputs]

    def model(self, torch: Any, scale: Scale) -> Any:
        """A module with the problem's layers, initialized by the framework."""
        problem, shape = self, self.inputs[0].shape(scale)
        channels = [s[1] if len(s) > 1 else 1 for s in (self.inputs[0].shape(FULL), shape)]

        class Model(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                at = Building(scale, *channels, shape)
                for name, build in problem.layers.items():
                    setattr(self, name, build(torch, at))

            def forward(self, *inputs: Any) -> Any:
                return problem.forward(torch, torch.nn.functional, self, *inputs)

        return Model()


def problem(
    name: str, forward: Callable[..., Any], *inputs: Input | tuple[Input, ...], **layers: Layer
) -> Problem:
    flat = tuple(i for each in inputs for i in (each if isinstance(each, tuple) else (each,)))
    return Problem(name, forward, flat, layers)

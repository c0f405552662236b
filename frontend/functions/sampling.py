"""Random tensors, drawn by Philox 4x32-10.

One seed gives the same bits on every
backend and in every run; they are not the bits PyTorch draws from that seed.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented
from tilewright.runtime.baseline import draws

from .. import devices as device_module
from .. import recording
from ..recording import Handle, compounds, record, volatile
from ..recording.builders import builder, takes_sizes
from .arguments import into, shape_of, sizes
from .call import public
from .complexes import view_as_real
from .creation import empty_like, written
from .from_data import finished
from .generator import (
    Generator,
    default_generator,
    draw,
    drawn_at_once,
    draws_at_once,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from .promotion import floating, to
from .spellings import by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike

__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "draw",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "multinomial",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
]

_WIDE = (dtypes.float32, dtypes.float64)

# ---- tensors of random numbers ---------------------------------------------------------------


def _float_dtype(name: str, dtype: DType | None) -> DType:
    dtype = recording.named_dtype(dtype)
    if not dtype.is_differentiable:
        raise not_implemented(name, dtype)
    return dtype


def _standard_uniform(seed: Node, offset: Node, dtype: DType, shape: tuple[int, ...]) -> Node:
    """Both parts of complex numbers are uniform in [0, 1)."""
    if dtype.is_complex:
        return ops.view_as_complex(ops.uniform(seed, offset, (*shape, 2), dtype.to_real()))
    return ops.uniform(seed, offset, shape, dtype)


def _standard_normal(seed: Node, offset: Node, dtype: DType, shape: tuple[int, ...]) -> Node:
    """The parts of complex numbers have variance 1/2 each."""
    if dtype.is_complex:
        parts = ops.normal(seed, offset, (*shape, 2), dtype.to_real())
        return ops.view_as_complex(parts * math.sqrt(0.5))
    return ops.normal(seed, offset, shape, dtype)


takes_sizes.update((_standard_uniform, _standard_normal))


def _drawn(
    form: Callable[..., Any],
    build: Callable[..., Node],
    generator: Generator | None,
    device: DeviceLike | None,
    shape: tuple[int, ...],
    dtype: DType,
) -> Any:
    """A draw by a form of the baseline tier, or by a builder."""
    where = device_module.resolve(device)
    made = drawn_at_once(form, generator, where, shape, dtype)
    if made is not None:
        return volatile.tensor(made, dtype)
    return record(build, *draw(generator, where), dtype, shape)


def _size(name: str, size: tuple[Any, ...], option: Any) -> tuple[int, ...]:
    shape = sizes(size, option, name)
    if any(s < 0 for s in shape):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension: {list(shape)}{at_user_line()}"
        )
    return shape


@public("rand", method=False)
def rand(
    *args: int | Sequence[int],
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **_: Any,
) -> Tensor:
    """Uniform numbers in [0, 1), of shape `size`."""
    shape, dtype = _size("rand", args, size), _float_dtype("rand", written(out, dtype))
    t = _drawn(draws.uniform, _standard_uniform, generator, device, shape, dtype)
    return finished(into(out, t), requires_grad, pin_memory)


@public("randn", method=False)
def randn(
    *args: int | Sequence[int],
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **_: Any,
) -> Tensor:
    """Standard normal numbers, of shape `size`."""
    shape, dtype = _size("randn", args, size), _float_dtype("randn", written(out, dtype))
    t = _drawn(draws.normal, _standard_normal, generator, device, shape, dtype)
    return finished(into(out, t), requires_grad, pin_memory)


@public("randint", method=False)
def randint(
    *args: int | Sequence[int],
    low: int | None = None,
    high: int | None = None,
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    layout: Any = None,
) -> Tensor:
    """Uniform integers in [low, high), of shape `size`; int64 by default.

    Called as randint(high, size) or randint(low, high, size).
    """
    given: list[Any] = list(args)
    if size is None and given:
        size = given.pop()
    bounds = [*given, *(v for v in (low, high) if v is not None)]
    if len(bounds) == 1:
        bounds.insert(0, 0)
    if len(bounds) != 2:
        raise TypeError(
            f"randint() takes (high, size) or (low, high, size), got {args}{at_user_line()}"
        )
    shape = _size("randint", (), shape_of("randint", size))
    low, high = (int(v) for v in bounds)
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
            f"{at_user_line()}"
        )
    where, dtype = device_module.resolve(device), recording.named_dtype(dtype, dtypes.int64)
    made = drawn_at_once(draws.integers, generator, where, shape, dtype, low, high)
    if made is not None:
        t = volatile.tensor(made, dtype)
    else:
        t = record(ops.randint, *draw(generator, where), low, high, shape, dtype)
    return finished(into(out, t), requires_grad, pin_memory)


def _randperm(seed: Node, offset: Node, n: int, dtype: DType) -> Node:
    return to(ops.randperm(seed, offset, n), dtype)


@public("randperm", method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A random permutation of 0, …, n - 1."""
    n = operator.index(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}{at_user_line()}")
    dtype = recording.named_dtype(dtype, dtypes.int64)
    where = device_module.resolve(device)
    made = drawn_at_once(draws.permutation, generator, where, (n,), dtype)
    if made is not None:
        t = volatile.tensor(made, dtype)
    else:
        t = record(_randperm, *draw(generator, where), n, dtype)
    return finished(into(out, t), requires_grad, pin_memory)


def _like(input: Any, options: dict[str, Any]) -> dict[str, Any]:
    options.pop("memory_format", None)
    for name in ("dtype", "device"):
        if options.get(name) is None:
            options[name] = getattr(input, name)
    return options


@public("rand_like", method=False)
@by_numpys_names
def rand_like(input: Tensor, **options: Any) -> Tensor:
    """Uniform numbers in [0, 1), of the shape, dtype and device of `input`."""
    if compounds.is_compound(input):
        return compounds.apply(rand_like, (input, options))
    return rand(input.shape, **_like(input, options))


@public("randn_like", method=False)
@by_numpys_names
def randn_like(input: Tensor, **options: Any) -> Tensor:
    """Standard normal numbers, of the shape, dtype and device of `input`."""
    if compounds.is_compound(input):
        return compounds.apply(randn_like, (input, options))
    return randn(input.shape, **_like(input, options))


@public("randint_like", method=False)
@by_numpys_names
def randint_like(input: Tensor, *bounds: Any, **options: Any) -> Tensor:
    """Uniform integers in [low, high) or [0, high), of the shape, dtype and device of `input`."""
    low, high = options.pop("low", None), options.pop("high", None)
    given = [*bounds, *(v for v in (low, high) if v is not None)]
    return randint(*given, tuple(input.shape), **_like(input, options))


# ---- distributions with parameters -----------------------------------------------------------


def _bernoulli(seed: Node, offset: Node, p: Node, shape: tuple[int, ...], dtype: DType) -> Node:
    return _drawn_by(to(ops.bernoulli(seed, offset, ops.detach(floating(p)), shape), dtype), p)


def _bernoulli_constant(
    seed: Node, offset: Node, p: float, shape: tuple[int, ...], dtype: DType
) -> Node:
    return to(ops.bernoulli(seed, offset, ops.constant(p, dtypes.float32), shape), dtype)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}{at_user_line()}")
    return float(p)


@public("bernoulli")
def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probability in each element of `input` (or `p` everywhere), else 0."""
    shape, dtype, where = input._typed()
    if p is None and not dtype.is_floating_point:
        raise RuntimeError(
            f"Expected a floating point tensor of probabilities, got {dtype}{at_user_line()}"
        )
    if out is not None:  # of any dtype: it holds ones and zeros
        dtype = out.dtype
    made = _trials_at_once(generator, where, tuple(shape), dtype, input if p is None else p)
    if made is not None:
        return into(out, volatile.tensor(made, dtype))
    seed_, offset = draw(generator, where)
    if p is None:
        recording.fallible_node_of(ops.within_unit, input, "bernoulli")
        return into(out, record(_bernoulli, seed_, offset, input, tuple(shape), dtype))
    t = record(_bernoulli_constant, seed_, offset, _probability(p), tuple(shape), dtype)
    return into(out, t)


def _trials_at_once(
    generator: Generator | None, where: str, shape: tuple[int, ...], dtype: DType, p: Any
) -> Any:
    """As `drawn_at_once`, of the probabilities in a tensor, or of one."""
    if not draws_at_once(where):
        return None
    if not isinstance(p, Handle):
        p = np.float32(_probability(p))
        return drawn_at_once(draws.trials, generator, where, shape, dtype, p)
    of = p.dtype
    is_known = of in _WIDE and not (p.requires_grad and recording.is_grad_enabled())
    probabilities = volatile.value(p) if is_known else None
    if probabilities is None or not ((probabilities >= 0) & (probabilities <= 1)).all():
        return None  # the recorded call has the error
    return drawn_at_once(draws.trials, generator, where, shape, dtype, probabilities, of)


def _normal(seed: Node, offset: Node, *args: Any) -> Node:
    mean, std, shape, dtype = args
    z = ops.normal(seed, offset, shape, dtype)
    shift, scale = (
        to(ops.detach(v), dtype) if isinstance(v, Node) else ops.constant(v, dtype)
        for v in (mean, std)
    )
    return _drawn_by(z * scale + shift, mean, std)


def _drawn_by(value: Node, *parameters: Any) -> Node:
    """A draw as PyTorch differentiates it: its parameters have gradients, which are zero."""
    for each in parameters:
        if isinstance(each, Node) and each.requires_grad:
            value = ops.overwritten(each, value)
    return value


@public("normal", method=False)
def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Normal numbers of the given means and standard deviations, tensors or numbers.

    The result has shape `size`, or the shape to which the tensors broadcast.
    """
    from tilewright.ir.shape import broadcast

    tensors: list[Any] = [v for v in (mean, std) if isinstance(v, Handle)]
    if isinstance(std, (int, float)) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}{at_user_line()}")
    if tensors:
        shape = tuple(broadcast(*(v.shape for v in tensors)))
        dtype, where = tensors[0].dtype, tensors[0]._typed()[2]
    else:
        if size is None:
            raise TypeError(f"normal() of two numbers needs a size{at_user_line()}")
        shape, where = sizes((size,)), device_module.resolve(device)
    dtype = _float_dtype("normal", dtype)
    made = _normal_at_once(generator, where, shape, dtype, mean, std)
    if made is not None:
        return into(out, finished(volatile.tensor(made, dtype), requires_grad))
    if isinstance(std, Handle):
        recording.fallible_node_of(_not_negative, std, "normal")
    parameters = [v if isinstance(v, Handle) else float(v) for v in (mean, std)]
    t = record(_normal, *draw(generator, where), *parameters, shape, dtype)
    return into(out, finished(t, requires_grad))


def _normal_at_once(
    generator: Generator | None,
    where: str,
    shape: tuple[int, ...],
    dtype: DType,
    *parameters: Any,
) -> Any:
    """As `drawn_at_once`, of means and standard deviations."""
    if dtype not in _WIDE or not draws_at_once(where):
        return None
    given: list[Any] = []
    for each in parameters:
        if not isinstance(each, Handle):
            given.append(float(each))
        elif each.dtype is not dtype or (each.requires_grad and recording.is_grad_enabled()):
            return None
        else:
            given.append(volatile.value(each))
    mean, std = given
    if mean is None or std is None or not np.all(std >= 0):
        return None  # the recorded call has the error
    return drawn_at_once(draws.scaled_normal, generator, where, shape, dtype, mean, std)


def _not_negative(x: Node, failure: str) -> Node:
    return ops.require(x >= 0, failure)


def _are_weights(p: Node, failure: str) -> Node:
    return ops.require(ops.bitwise_and(p >= 0, p < math.inf), failure)


def _have_sum(p: Node, failure: str) -> Node:
    """A check that each row has a weight that isn't zero."""
    return ops.require(ops.any(ops.ne(p, ops.full_like(p, 0)), (p.rank - 1,)), failure)


def _multinomial(seed: Node, offset: Node, p: Node, count: int, replacement: bool) -> Node:
    p = ops.detach(p)
    p = to(p, dtypes.accumulator(p.dtype))
    axis = p.rank - 1
    classes = p.shape[axis]
    if not replacement:
        # Exponential clocks of rates p ring in an order that is such a sample.
        u = ops.uniform(seed, offset, p.shape, p.dtype)
        ring = -ops.log1p(-u) / p
        never = ops.expand(ops.constant(math.inf, p.dtype), p.shape)
        order = ops.argsort(ops.where(p > 0, ring, never), axis, False)
        return ops.slice_axis(order, axis, 0, count)
    cdf = ops.cumsum(p, axis)
    total = ops.slice_axis(cdf, axis, classes - 1, classes)
    u = ops.uniform(seed, offset, (*p.shape[:-1], count), p.dtype) * total

    def below(bound: Node, strictly: bool) -> Node:
        """Count the steps of the distribution below each bound."""
        at = ops.unsqueeze(bound, axis + 1)
        steps = ops.unsqueeze(cdf, axis)
        found = steps < at if strictly else steps <= at
        return ops.squeeze(ops.sum(to(found, dtypes.int64), (axis + 1,)), (axis + 1,))

    # Rounding may lift u to the total: it then stands for the last class of positive weight.
    return ops.minimum(below(u, False), below(total, True))


MOST_CLASSES = 1 << 24


@public("multinomial")
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`num_samples` class indices drawn from each row of weights (which need not sum to one)."""
    if input.dim() not in (1, 2) or not input.dtype.is_floating_point:
        raise RuntimeError(
            "multinomial: expected weights in a float tensor of 1 or 2 dimensions, got "
            f"{input.dtype} {tuple(input.shape)}{at_user_line()}"
        )
    if input.shape[-1] > MOST_CLASSES:
        raise RuntimeError(f"number of categories cannot exceed 2^24{at_user_line()}")
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples{at_user_line()}")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            f"{at_user_line()}"
        )
    count, where = int(num_samples), input._typed()[2]
    made = _classes_at_once(generator, where, input, count, bool(replacement))
    if made is not None:
        return into(out, volatile.tensor(made, dtypes.int64), cast=False)
    drawn = draw(generator, where)
    recording.fallible_node_of(_are_weights, input, "multinomial")
    recording.fallible_node_of(_have_sum, input, "multinomial sum")
    found = record(_multinomial, *drawn, input, count, bool(replacement))
    return into(out, found, cast=False)


def _classes_at_once(
    generator: Generator | None, where: str, input: Any, count: int, replacement: bool
) -> Any:
    """As `drawn_at_once`, of weights."""
    if input.dtype not in _WIDE or not draws_at_once(where):
        return None
    p = volatile.value(input)
    if p is None or not p.size or not (p >= 0).all() or not (p < math.inf).all():
        return None  # the recorded call has the error
    if not p.any(-1).all():
        return None
    shape = (*p.shape[:-1], count)
    form = draws.classes
    return drawn_at_once(form, generator, where, shape, dtypes.int64, p, input.dtype, replacement)


# ---- in place --------------------------------------------------------------------------------


def _fill(
    t: Any,
    build: Callable[..., Node],
    generator: Generator | None,
    *attrs: Any,
    form: Callable[..., Any] | None = None,
) -> Any:
    """Overwrite a tensor with a draw by a builder. form: the same in the baseline tier."""
    shape, dtype, where = t._typed()
    shape = tuple(shape)
    if form is not None and recording.clock.volatile:
        draw_now = functools.partial(drawn_at_once, form, generator, where, shape, dtype, *attrs)
        if volatile.refilled(t, draw_now):
            return t
    drawn = draw(generator, where)
    return recording.assign(t, recording.node_of(build, *drawn, shape, dtype, *attrs))


def _require_float(name: str, t: Any) -> None:
    if not t.dtype.is_floating_point:
        raise not_implemented(name, t.dtype)


def _uniform(seed: Node, offset: Node, *args: Any) -> Node:
    shape, dtype, low, high = args
    u = ops.uniform(seed, offset, shape, dtype)
    if (low, high) == (0.0, 1.0):
        return u
    return u * (high - low) + low


@public("uniform_", function=False)
def uniform_(
    self: Tensor,
    from_: float = 0,
    to_: float = 1,
    *,
    generator: Generator | None = None,
    **named: Any,
) -> Tensor:
    """Fill with uniform numbers in [from, to)."""
    low, high = float(named.get("from", from_)), float(named.get("to", to_))
    if self.dtype.is_complex:  # both parts
        uniform_(view_as_real(self), low, high, generator=generator)
        return self
    _require_float("uniform_", self)
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
            f"{at_user_line()}"
        )
    return _fill(self, _uniform, generator, low, high, form=draws.uniform)


def _scaled_normal(seed: Node, offset: Node, *args: Any) -> Node:
    shape, dtype, mean, std = args
    return _normal(seed, offset, mean, std, shape, dtype)


@public("normal_", function=False)
def normal_(
    self: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers. The parts of complex ones have half of the variance each."""
    if self.dtype.is_complex:
        normal_(view_as_real(self), mean, std * math.sqrt(0.5), generator=generator)
        return self
    _require_float("normal_", self)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}{at_user_line()}")
    return _fill(self, _scaled_normal, generator, float(mean), float(std), form=draws.scaled_normal)


# The integers that each dtype holds exactly: random_() draws from [0, 2^digits].
_DIGITS = {
    dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8,
    dtypes.float8_e4m3fn: 4, dtypes.float8_e5m2: 3,
    dtypes.int64: 63, dtypes.int32: 31, dtypes.int16: 15, dtypes.int8: 7, dtypes.uint8: 8,
    dtypes.bool_: 1,
}  # fmt: skip


def _integers(seed: Node, offset: Node, *args: Any) -> Node:
    shape, dtype, low, high = args
    return ops.randint(seed, offset, low, high, shape, dtype)


@public("random_", function=False)
def random_(
    self: Tensor, from_: int = 0, to_: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fill with integers in [from, to): random_(), random_(to) or random_(from, to)."""
    if to_ is None:
        high = 1 << _DIGITS[self.dtype]
        low, high = (0, high + self.dtype.is_floating_point) if from_ == 0 else (0, int(from_))
    else:
        low, high = int(from_), int(to_)
        if not self.dtype.is_floating_point and self.dtype is not dtypes.bool_:
            limits = np.iinfo(self.dtype.np)
            for what, value in (("from", low), ("to - 1", high - 1)):
                if not limits.min <= value <= limits.max:
                    raise RuntimeError(f"{what} is out of bounds for {self.dtype}{at_user_line()}")
    return _fill(self, _integers, generator, low, high, form=draws.integers)


@public("bernoulli_", function=False)
def bernoulli_(
    self: Tensor, p: float | Tensor = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1 with probability `p` (a number, or a tensor that broadcasts), else 0."""
    shape, dtype, where = self._typed()
    draw_now = functools.partial(_trials_at_once, generator, where, tuple(shape), dtype, p)
    if recording.clock.volatile and volatile.refilled(self, draw_now):
        return self
    drawn = draw(generator, where)
    if isinstance(p, Handle):
        recording.fallible_node_of(ops.within_unit, p, "bernoulli")
        node = recording.node_of(_bernoulli, *drawn, p, tuple(shape), dtype)
    else:
        build = _bernoulli_constant
        node = recording.node_of(build, *drawn, _probability(p), tuple(shape), dtype)
    recording.assign(self, node)
    recording.settle()  # so that op by op an error is raised here
    return self


def _transformed(name: str, transform: Callable[..., Node]) -> Callable[..., Node]:
    """A builder of `transform` of uniform numbers in [0, 1)."""

    @builder(name)
    def build(seed: Node, offset: Node, *args: Any) -> Node:
        shape, dtype, *parameters = args
        wide = dtypes.accumulator(dtype) if dtype.is_floating_point else dtypes.float32
        return to(transform(ops.uniform(seed, offset, shape, wide), *parameters), dtype)

    return build


def _check_positive(name: str, what: str, value: float) -> None:
    if not value > 0:
        raise RuntimeError(f"{name} expects {what} > 0.0, but found {what}={value}{at_user_line()}")


_exponential = _transformed("exponential_", lambda u, rate: -ops.log1p(-u) / rate)


@public("exponential_", function=False)
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of the rate `lambd`."""
    _require_float("exponential_", self)
    _check_positive("exponential_", "lambda", lambd)
    return _fill(self, _exponential, generator, float(lambd))


def _trials(u: Node, p: float) -> Node:
    if p >= 1:
        return ops.full_like(u, 1)
    # u = 0 would give 0 trials.
    return ops.maximum(ops.ceil(ops.log1p(-u) / math.log1p(-p)), ops.full_like(u, 1))


_geometric = _transformed("geometric_", _trials)


@public("geometric_", function=False)
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with geometric numbers: counts of trials of probability p up to the first success."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}{at_user_line()}")
    if self.dtype.category in (dtypes.BOOL, dtypes.COMPLEX):
        raise not_implemented("geometric_cpu", self.dtype)
    return _fill(self, _geometric, generator, float(p))


_cauchy = _transformed(
    "cauchy_", lambda u, median, sigma: ops.tan((u - 0.5) * math.pi) * sigma + median
)


@public("cauchy_", function=False)
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy numbers of the given median and scale."""
    _require_float("cauchy_", self)
    _check_positive("cauchy_", "sigma", sigma)
    return _fill(self, _cauchy, generator, float(median), float(sigma))


@public("log_normal_", function=False)
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exp of normal numbers of the given mean and standard deviation."""
    _require_float("log_normal_cpu", self)
    _check_positive("log_normal_", "std", std)
    with recording.grad_mode(False):
        drawn = normal_(empty_like(self), mean, std, generator=generator).exp_()
    return self.copy_(drawn)  # outside, as it ends the history of the tensor

"""Random numbers. They follow ONNX's distributions; their bits are our generator's.

A node with a seed draws from a generator of its own, which begins anew at each call of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation, sampling
from ...functions.generator import Generator
from .api import f
from .table import operator
from .values import dtype_of


def _generator(seed: float | None) -> Any:
    """A generator for a node's seed, which is a float in ONNX: its bits are the seed."""
    if seed is None:
        return None
    return Generator().manual_seed(int(np.float32(seed).view(np.uint32)))


def _drawn(made: Any, shape: Any, dtype: Any, device: Any, seed: float | None) -> Any:
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    return made(*shape, generator=_generator(seed), dtype=wide, device=device)


@operator("RandomNormal", known="never")
def random_normal(
    *,
    shape: list[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    device: Any = None,
) -> Any:
    to = dtype_of(dtype)
    return (_drawn(sampling.randn, shape, to, device, seed) * scale + mean).to(to)


@operator("RandomNormalLike", known="never")
def random_normal_like(
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Any:
    to = x.dtype if dtype is None else dtype_of(dtype)
    return (_drawn(sampling.randn, x.shape, to, x.device, seed) * scale + mean).to(to)


@operator("RandomUniform", known="never")
def random_uniform(
    *,
    shape: list[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    device: Any = None,
) -> Any:
    to = dtype_of(dtype)
    return (_drawn(sampling.rand, shape, to, device, seed) * (high - low) + low).to(to)


@operator("RandomUniformLike", known="never")
def random_uniform_like(
    x: Any,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Any:
    to = x.dtype if dtype is None else dtype_of(dtype)
    return (_drawn(sampling.rand, x.shape, to, x.device, seed) * (high - low) + low).to(to)


@operator("Bernoulli", known="never")
def bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None) -> Any:
    to = x.dtype if dtype is None else dtype_of(dtype)
    return sampling.bernoulli(x, generator=_generator(seed)).to(to)


@operator("Multinomial", known="never")
def multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    """Classes, drawn by probabilities whose logarithms are x[n, classes]."""
    chances = f.softmax(x.to(dtypes.float32), -1)
    return sampling.multinomial(chances, sample_size, True, generator=_generator(seed)).to(
        dtype_of(dtype)
    )


@operator("Dropout", since=12, host=("ratio", "training"), known="never")
def dropout(x: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None) -> Any:
    """(x, what is kept). Only in training mode, which is an input, is anything dropped."""
    share = 0.5 if ratio is None else float(ratio.item())
    ones = creation.ones_like(x, dtype=dtypes.bool_)
    if training is None or not bool(training.item()) or share == 0:
        return x, ones
    generator = None if seed is None else Generator().manual_seed(seed)
    kept = sampling.rand(x.shape, generator=generator, device=x.device) >= share
    return f.where(kept, x / (1 - share), 0.0).to(x.dtype), kept


@operator("Dropout")
def dropout_of_inference(x: Any, *, ratio: float = 0.5, is_test: int = 0) -> Any:
    """Dropout before opset 12, which drops nothing, as models run in inference mode."""
    return x, creation.ones_like(x, dtype=dtypes.bool_)

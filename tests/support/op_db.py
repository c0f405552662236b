"""PyTorch's own operator database, fed to tilewright.

`op_db` has thousands of sample inputs for some 700 variants of operators. Each sample's tensors
become ours with the same strides, and the op is found by its public name. `examine(variant)` says
what is right; `tools/op_db.py` prints the table, `test_op_db.py` holds it against `op_db_known.py`.
"""

from __future__ import annotations

import itertools
import math
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from op_db_values import numbers_of, ours, same, tensors

import tilewright as tw
from tilewright.nn import functional as F

ASPECTS = ("forward", "gradient", "second", "in place", "out", "errors")
MOST_ELEMENTS = 20_000
"""Samples with larger tensors are left out: they test speed."""
MOST_SECOND = 64
"""Second derivatives are taken where the inputs are at most so large."""


def load() -> list[Any]:
    """The variants of operators that have a public name."""
    import torch  # noqa: F401

    if "expecttest" not in sys.modules:
        # PyTorch's test tools derive one class from this package's and use nothing else of it.
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if is_public(op.name)]


def is_public(name: str) -> bool:
    last = name.split(".")[-1]
    private = last.startswith("_") and not last.startswith("__")
    return not private and not name.startswith(("torch.ops", "ops.", "sparse."))


def title(op: Any) -> str:
    return f"{op.name}:{op.variant_test_name}" if op.variant_test_name else str(op.name)


def namespace(op: Any) -> str:
    """The module that the op's name begins with; of what only tensors have, `Tensor`."""
    import torch

    path = op.name.rpartition(".")[0]
    return path or ("" if hasattr(torch, op.name) else "Tensor")


def found(module: Any, path: str) -> Any:
    """The function of that name, or the method of tensors; None if there is none."""
    value = module
    for part in path.split("."):
        value = getattr(value, part, None)
    if value is None or isinstance(value, module.dtype):  # torch.chalf is a dtype
        value = getattr(module.Tensor, path, None)
    return None if isinstance(value, property) else value


# `torch.float` is a dtype, and the op is the method.
_METHODS = frozenset(
    "bool byte char short int long half float double bfloat16 cfloat cdouble".split()
)
_PROPERTIES = frozenset("T H mT mH".split())
_DRAWS = frozenset("cauchy exponential geometric log_normal uniform".split())


# Ops that the database gives their arguments in an order of its own.
_ARGUMENTS: dict[str, Callable[..., Any]] = {
    "nn.functional.embedding": lambda weight, x, **named: F.embedding(x, weight, **named),
    "nn.functional.embedding_bag": lambda weight, x, *args, **named: F.embedding_bag(
        x, weight, *args, **named
    ),
    "einsum": lambda operands, equation: tw.einsum(equation, *operands),
    "where": lambda x, where, other, **named: tw.where(where, x, other, **named),
    "polygamma": lambda x, n, **named: tw.polygamma(n, x, **named),
    "special.polygamma": lambda x, n, **named: tw.polygamma(n, x, **named),
}
# Variants for which the database calls a composition of its own.
_COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "linalg.lstsq:grad_oriented": lambda a, b, driver: tw.linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv:singular": lambda a, b: tw.linalg.pinv(a @ b.mT),
    "pca_lowrank": lambda a, b, **named: tw.pca_lowrank(a @ b.mT, **named),
    "svd_lowrank": lambda a, b, **named: tw.svd_lowrank(a @ b.mT, **named),
}
# Vectors are unique up to phases. What the database differentiates doesn't depend on these.
_UP_TO_PHASES = frozenset("svd linalg.svd linalg.eigh linalg.eig".split())


def function_of(op: Any) -> Callable[..., Any] | None:
    """Our function for an op of the database, None if there is none."""
    if op.name in _PROPERTIES:
        return lambda t: getattr(t, op.name)
    if title(op) in _COMPOSITIONS:
        return _COMPOSITIONS[title(op)]
    if op.name in _ARGUMENTS:
        return _ARGUMENTS[op.name]
    if op.name in _METHODS:
        return getattr(tw.Tensor, op.name, None)
    if op.name in _DRAWS or op.variant_test_name == "in_place":
        return getattr(tw.Tensor, f"{op.name}_", None)
    return found(tw, op.name)


@dataclass
class Tally:
    """Samples that were right, all samples, and the first faults."""

    right: int = 0
    all: int = 0
    faults: list[str] = field(default_factory=list)

    def run(self, check: Callable[[], None], about: str) -> bool:
        self.all += 1
        try:
            check()
        except Exception as fault:
            text = " ".join(str(fault).split())[:260]
            self.faults.append(f"{about}: {type(fault).__name__}: {text}")
            return False
        self.right += 1
        return True

    @property
    def good(self) -> bool:
        return self.right == self.all


Report = dict[str, Tally]


def said(sample: Any) -> str:
    """A sample in short: shapes of tensors, and the other arguments."""

    def of(value: Any) -> str:
        if hasattr(value, "stride"):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(of, value))})"
        return repr(value)

    named = [f"{name}={of(value)}" for name, value in sample.kwargs.items()]
    return ", ".join([of(sample.input), *map(of, sample.args), *named])[:160]


def samples(op: Any, dtype: Any, grad: bool, most: int | None) -> Iterable[Any]:
    """The samples of an op that are small enough; `most` of them, spread over all."""
    try:
        every = [
            sample
            for sample in op.sample_inputs("cpu", dtype, requires_grad=grad)
            if all(
                t.numel() <= MOST_ELEMENTS and str(t.layout) == "torch.strided"
                for t in tensors([sample.input, sample.args, sample.kwargs])
            )
        ]
    except Exception:  # PyTorch can't make them here (a library that it was built without)
        return []
    if most is None or len(every) <= most:
        return every
    step = len(every) / most
    return [every[int(i * step)] for i in range(most)]


def called(function: Callable[..., Any], sample: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs)


def of_ours(sample: Any) -> tuple[Any, Any, Any]:
    return ours(sample.input), ours(sample.args), ours(sample.kwargs)


# ---- what is examined --------------------------------------------------------------------------


def examine(
    op: Any,
    dtypes: Iterable[str] = ("float32",),
    most: int | None = None,
    aspects: Iterable[str] = ASPECTS,
) -> Report | None:
    """What of an op is right; None if there is no such function."""
    import torch

    function = function_of(op)
    if function is None:
        return None
    report = {aspect: Tally() for aspect in aspects}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        np.random.seed(0)
        tw.manual_seed(0)
        usable = [getattr(torch, name) for name in dtypes if getattr(torch, name) in op.dtypes]
        if not usable and len(op.dtypes):
            usable = [next(d for d in sorted(op.dtypes, key=str) if d is not torch.bfloat16)]
        for dtype in usable:
            for sample in samples(op, dtype, False, most):
                _values(op, function, sample, report)
        if op.supports_autograd and torch.float64 in op.dtypes:
            for sample in samples(op, torch.float64, True, most):
                _gradients(op, function, sample, report)
        if "errors" in report and op.error_inputs_func is not None:
            _errors(op, function, report["errors"])
    return report


# Samples of other dtypes have equal elements. Which of these a position names is not specified.
_FINE = ("torch.float32", "torch.float64")
_WITH_TIES = frozenset("sort argsort topk kthvalue mode median nanmedian".split())


THOROUGH = ("float32", "int64", "bool", "bfloat16")
"""The dtypes of the samples whose differences are listed."""


def differences(
    ops: Iterable[Any], known: Mapping[tuple[str, str], str]
) -> tuple[list[str], list[str]]:
    """Faults that aren't known, with their first samples; and known ones that are right."""
    new, stale = [], []
    for op in ops:
        report = examine(op, THOROUGH)
        for aspect, tally in (report or {}).items():
            place = (title(op), aspect)
            if not tally.good and place not in known:
                new.append(f"{title(op)} {aspect}: {tally.right} of {tally.all}: {tally.faults[0]}")
            if tally.good and place in known:
                stale.append(" ".join(place))
    return new, stale


def is_random(op: Any) -> bool:
    return bool(op.has_nondeterministic_output) or op.name in _RANDOM


_RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like bernoulli multinomial normal uniform "
    "cauchy exponential geometric log_normal empty empty_like empty_strided empty_permuted "
    "new_empty new_empty_strided randperm nn.functional.dropout nn.functional.dropout2d "
    "nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout "
    "nn.functional.rrelu nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d "
    "nn.functional.scaled_dot_product_attention nn.functional.multi_head_attention_forward "
    "pca_lowrank svd_lowrank resize_ resize_as_".split()
)


def _values(op: Any, function: Callable[..., Any], sample: Any, report: Report) -> None:
    random = is_random(op)
    try:
        theirs = _by_torch(op, sample)
    except Exception:
        return
    about = said(sample)

    def forward() -> None:
        first, args, kwargs = of_ours(sample)
        mine, wanted = function(first, *args, **kwargs), theirs
        tied = op.name in _WITH_TIES and str(sample.input.dtype) not in _FINE
        if op.name in _UP_TO_PHASES and sample.output_process_fn_grad:
            mine, wanted = map(sample.output_process_fn_grad, (mine, wanted))
        if tied and isinstance(mine, tuple):
            mine, wanted = mine[:1], wanted[:1]
        same(mine, wanted, values=not random and not (tied and op.name == "argsort"))

    right = report["forward"].run(forward, about) if "forward" in report else True
    if not right:
        return
    if op.supports_out and "out" in report and isinstance(theirs, torch_tensor()):
        report["out"].run(lambda: _written(function, sample, theirs, random), about)
    write = found(tw, f"{op.name}_") if "." in op.name else getattr(tw.Tensor, f"{op.name}_", None)
    inplace = None if op.name.endswith("_") else op.get_inplace()
    if inplace is not None and "in place" in report:
        copied = _copied(sample.input)
        try:
            inplace(copied, *sample.args, **sample.kwargs)
        except Exception:
            return

        def overwrites() -> None:
            assert write is not None, f"{op.name}_ is missing"
            first, args, kwargs = of_ours(sample)
            result = write(first.clone(), *args, **kwargs)
            same(result, copied, values=not random)

        report["in place"].run(overwrites, about)


def _by_torch(op: Any, sample: Any) -> Any:
    """PyTorch's result; a function that writes gets a copy."""
    first = _copied(sample.input) if op.name.endswith("_") else sample.input
    return op.op(first, *sample.args, **sample.kwargs)


def torch_tensor() -> Any:
    import torch

    return torch.Tensor


def _copied(value: Any) -> Any:
    if isinstance(value, torch_tensor()):
        return value.detach().clone()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
    return value


def _written(function: Callable[..., Any], sample: Any, theirs: Any, random: bool) -> None:
    """`out` of the right size is filled; an empty one is resized; strides are kept."""
    dtype = getattr(tw, str(theirs.dtype).removeprefix("torch."))
    for out in (
        tw.zeros(tuple(theirs.shape), dtype=dtype),
        tw.zeros(0, dtype=dtype),
        tw.zeros((*theirs.shape, 2), dtype=dtype)[..., 0],
    ):
        first, args, kwargs = of_ours(sample)
        strides = out.stride() if out.shape == tuple(theirs.shape) else None
        result = function(first, *args, **kwargs, out=out)
        assert result is out, "the result is not `out`"
        same(out, theirs, values=not random)
        assert strides is None or out.stride() == strides, "the strides of `out` have changed"


def _gradients(op: Any, function: Callable[..., Any], sample: Any, report: Report) -> None:
    import torch

    if is_random(op) or not {"gradient", "second"} & report.keys():
        return
    leaves = [t for t in tensors([sample.input, sample.args, sample.kwargs]) if t.requires_grad]
    if not leaves:
        return
    pick = sample.output_process_fn_grad or (lambda result: result)

    def of(library: Any, results: Any, wrt: list[Any], create: bool) -> list[Any] | None:
        made = [r for r in tensors(results) if r.requires_grad and r.dtype.is_floating_point]
        if not made:
            return None
        seeds = [_weights(library, r, i) for i, r in enumerate(made)]
        grads = library.autograd.grad(made, wrt, seeds, allow_unused=True, create_graph=create)
        return list(grads)

    small = op.supports_gradgrad and sum(t.numel() for t in leaves) <= MOST_SECOND
    second = small and "second" in report
    try:
        theirs = of(torch, pick(called(op.op, sample)), leaves, second)
        if theirs is None:
            return
        theirs_again = of(torch, theirs, leaves, False) if second else None
    except Exception:
        return
    about = said(sample)
    kept: list[Any] = []

    def first() -> None:
        value, args, kwargs = of_ours(sample)
        first = value.clone() if op.name.endswith("_") else value
        result = pick(function(first, *args, **kwargs))
        wrt = [t for t in tensors([value, args, kwargs]) if t.requires_grad]
        mine = of(tw, result, wrt, second)
        assert mine is not None, "nothing requires a gradient"
        _same_gradients(mine, theirs)
        kept.extend((mine, wrt))

    right = report["gradient"].run(first, about) if "gradient" in report else False
    if right and second and theirs_again is not None:

        def again() -> None:
            mine = of(tw, kept[0], kept[1], False)
            _same_gradients(mine or [None] * len(leaves), theirs_again)

        report["second"].run(again, about)


def _weights(library: Any, result: Any, place: int) -> Any:
    count = math.prod(result.shape)
    line = np.cos(np.arange(count) * 0.7 + place).reshape(tuple(result.shape))
    return library.tensor(line).to(result.dtype)


def _same_gradients(mine: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        if a is None and b is None:
            continue
        if a is None or b is None:  # unused, which is as good as zeros
            left = numbers_of(b if a is None else a)
            np.testing.assert_array_equal(left, np.zeros_like(left))
            continue
        same(a, b)


def _errors(op: Any, function: Callable[..., Any], tally: Tally) -> None:
    try:
        cases = list(itertools.islice(op.error_inputs("cpu"), 40))
    except Exception:
        return
    samples = [each.sample_input for each in cases]
    # All of ours come first: a call of PyTorch's may change an `out` that samples share.
    for sample, mine in [(each, _as_ours(each)) for each in samples]:
        given = list(tensors([sample.input, sample.args, sample.kwargs]))
        if not all(str(t.layout) == "torch.strided" and t.device.type == "cpu" for t in given):
            continue
        about = said(sample)
        try:
            called(op.op, sample)
            continue
        except Exception as theirs:
            expected = type(theirs)

        def fails(mine: Any = mine, expected: type[Exception] = expected) -> None:
            if isinstance(mine, Exception):
                raise mine
            first, args, kwargs = mine
            try:
                result = function(first, *args, **kwargs)
                for each in tensors(result):
                    each.tolist()
            except Exception as fault:
                assert isinstance(fault, expected), f"{fault!r} for {expected.__name__}"
                return
            raise AssertionError(f"no {expected.__name__}")

        tally.run(fails, about)


def _as_ours(sample: Any) -> Any:
    """(input, args, kwargs) of a sample in which tensors may share memory; or what hinders it."""
    memories: dict[int, Any] = {}
    try:
        return [ours(part, memories) for part in (sample.input, sample.args, sample.kwargs)]
    except Exception as fault:
        return fault

"""Comparison of an exported model with our own results, by onnxruntime."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import recording
from ..inspection.tracing import Call, eval_mode, own_buffers, tensors_of
from .errors import OnnxExporterError
from .session import arrays_of, has_no_kernel, require_onnxruntime, session_of

TOLERANCE = {1: 0.13, 2: 2e-2, 4: 1e-4, 8: 1e-6}
"""Bytes of a float -> the allowed error, relative to the largest element."""

TIES = 0.01
"""The part of integers that may differ: positions of elements that are nearly equal."""


def results(call: Call, sizes: Mapping[Any, int]) -> tuple[list[Any], list[tuple[str, np.ndarray]]]:
    """(inputs, named results) of the model, computed by us, with other sizes of its inputs."""
    inputs = call.inputs_of(sizes)
    with eval_mode(call.model), own_buffers(call.model), recording.grad_mode(False):
        made = tensors_of("output", call.called(inputs))
        return inputs, [(name, arrays_of([t])[0]) for name, t in made]


def difference(
    ours: np.ndarray,
    theirs: np.ndarray,
    tolerance: Mapping[int, float] = TOLERANCE,
    ties: float = TIES,
) -> str:
    """What differs between two results; nothing if they are the same up to rounding."""
    if ours.shape != theirs.shape:
        return f"has shape {list(theirs.shape)} instead of {list(ours.shape)}"
    if ours.dtype != theirs.dtype:
        return f"is of {theirs.dtype} instead of {ours.dtype}"
    if ours.dtype.kind in "iub":
        wrong = int((ours != theirs).sum())
        return f"differs in {wrong} of {ours.size} elements" if wrong > ties * ours.size else ""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "differs where it isn't finite"
    worst = np.abs(a[finite] - b[finite]).max(initial=0.0)
    scale = max(1.0, float(np.abs(a[finite]).max(initial=0.0)))
    if worst <= tolerance[ours.dtype.itemsize] * scale:
        return ""
    return f"differs by {worst:.3g}, where the largest element is {scale:.3g}"


def verify_program(
    program: Any, call: Call, checks: Sequence[tuple[str, Mapping[Any, int]]], always: bool
) -> list[str]:
    """Run the program and the model at several sizes; an error says what differs.

    checks: (the sizes in words, the sizes) of each run; the first is the example, the others are
    left out if the model doesn't accept them. always: whether a missing onnxruntime is an error.
    Returns what was compared, in words.
    """
    if importlib.util.find_spec("onnxruntime") is None and not always:
        return []
    require_onnxruntime("verify=True")
    try:
        session = session_of(program.model_proto)
    except Exception as error:
        if not has_no_kernel(error):
            raise OnnxExporterError(
                f"verify: onnxruntime doesn't load the model: {_short(error)}"
            ) from error
        warnings.warn(
            "export: the model isn't verified, because onnxruntime has no kernels for it on the "
            f"CPU: {_short(error)}",
            stacklevel=4,
        )
        return []
    names = [i.name for i in session.get_inputs()]
    done: list[str] = []
    for number, (words, sizes) in enumerate(checks):
        try:
            inputs, wanted = results(call, sizes)
        except Exception:
            if not number:
                raise
            continue
        where = f" at {words}" if words else ""
        feed = dict(zip(names, arrays_of(inputs), strict=True))
        try:
            found = session.run(None, feed)
        except Exception as error:
            raise OnnxExporterError(
                f"verify: onnxruntime can't run the model{where}: {_short(error)}{_hint(number)}"
            ) from error
        for (name, ours), theirs in zip(wanted, found, strict=True):
            wrong = difference(ours, theirs)
            if wrong:
                raise OnnxExporterError(
                    f"verify: {name} {wrong}, as onnxruntime computes it{where}{_hint(number)}"
                )
        done.append(words or "the example's sizes")
    return done


def _hint(number: int) -> str:
    if not number:
        return ""
    return (
        ". At the example's sizes it is right: the model depends on a dynamic axis in a way that "
        "the export doesn't see. Give that axis a fixed size, or pass verify=False"
    )


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300]

"""`tilewright run-onnx`: run an ONNX model, show its outputs and time it."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..functions import from_data
from .errors import fail, user_errors
from .target import parse_input

_FILE = (".npy",)


def run_onnx(
    source: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="NAME=SHAPE[,DTYPE] draws one: x=1x3x8x8 or ids=2x16,int64. NAME=FILE.npy reads "
            "one. Repeatable. An input whose sizes the model fixes may be left out.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=0, help="Timed runs.")] = 10,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the outputs to this .npz file.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or interpret.")] = "",
) -> None:
    """Run an ONNX model: its outputs, and how long a run takes.

    Inputs that aren't read from a file are normal numbers, or zeros if they are integers.
    """
    from .. import onnx
    from ..autograd import no_grad
    from ..devices import default

    kinds = RuntimeError, ValueError, TypeError, OSError, ImportError
    with user_errors(*kinds), default(device or None):
        model = onnx.load(source)
        named = {each.name: _value(each, inputs or ()) for each in model.inputs}
        unknown = [text for text in inputs or () if text.partition("=")[0] not in named]
        if unknown:
            fail(f"no input {unknown[0]!r}: the model has {', '.join(map(str, model.inputs))}")
    if device:
        model = model.to(device)
    with user_errors(*kinds, status=1), no_grad():
        begin = time.perf_counter()
        found = _run(model, named)
        first = time.perf_counter() - begin
        times = [_timed(model, named) for _ in range(repeat)]
    for name, value in zip(model.outputs, found, strict=True):
        print(f"{name}: {_told(value)}")
    said = f"first run {first * 1e3:.1f} ms"
    if times:
        best = f"median {statistics.median(times) * 1e3:.3f} ms, least {min(times) * 1e3:.3f} ms"
        said += f"; of {repeat} more: {best}"
    print(said)
    if output is not None:
        arrays = {n: _array(v) for n, v in zip(model.outputs, found, strict=True)}
        if any(isinstance(a, list) for a in arrays.values()):
            fail("a sequence doesn't go into an .npz file")
        np.savez(output, **arrays)


def _value(wanted: Any, texts: Any) -> Any:
    """The input that the command line names, or one that is drawn."""
    for text in texts:
        name, equals, what = text.partition("=")
        if not equals:
            raise ValueError(f"expected NAME=SHAPE or NAME=FILE.npy, got {text!r}")
        if name != wanted.name:
            continue
        if what.endswith(_FILE):
            return from_data.tensor(np.load(what, allow_pickle=False))
        return parse_input(what if "," in what else f"{what},{_dtype(wanted)}")
    sizes = getattr(wanted, "sizes", None)
    if sizes is None or not all(isinstance(n, int) for n in sizes):
        raise ValueError(f"name the input {wanted}: --input {wanted.name}=SHAPE")
    return parse_input(f"{'x'.join(map(str, sizes)) or 'scalar'},{_dtype(wanted)}")


def _dtype(wanted: Any) -> str:
    return str(getattr(wanted, "dtype", "")).removeprefix("torch.")


def _run(model: Any, named: dict[str, Any]) -> tuple[Any, ...]:
    """The outputs, computed."""
    found = model(**named)
    outputs = found if isinstance(found, tuple) else (found,)
    for value in outputs:
        _array(value)
    return outputs


def _timed(model: Any, named: dict[str, Any]) -> float:
    begin = time.perf_counter()
    _run(model, named)
    return time.perf_counter() - begin


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _told(value: Any) -> str:
    """A value's dtype, sizes and range."""
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if value is None:
        return "nothing"
    array = np.asarray(_array(value))
    said = f"{array.dtype}{list(array.shape)}"
    if array.size and array.dtype.kind in "iuf":
        said += f", {array.min():.6g} to {array.max():.6g}, mean {array.mean():.6g}"
    return said

"""The axes of variable size, in PyTorch's two notations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..inspection.tracing import Call, named_arguments
from ..recording import Handle


def dynamic_axes_of(
    call: Call,
    input_names: Sequence[str] | None,
    dynamic_axes: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> dict[tuple[int, int], str]:
    """{(number of the input, axis): name of its size}."""
    if dynamic_axes and dynamic_shapes:
        raise ValueError("export: give dynamic_axes or dynamic_shapes, not both")
    if dynamic_axes:
        given = list(input_names or ())
        return _of_axes(call, [*given, *call.names[len(given) :]], dynamic_axes)
    return dict(_of_shapes(call, dynamic_shapes)) if dynamic_shapes else {}


def _of_axes(
    call: Call, names: Sequence[str], dynamic_axes: Mapping[str, Any]
) -> dict[tuple[int, int], str]:
    out = {}
    for key, axes in dynamic_axes.items():
        if key not in names:
            continue  # an output: its sizes follow from those of the inputs
        if not isinstance(axes, Mapping):
            axes = {axis: f"{key}_dynamic_axes_{i}" for i, axis in enumerate(axes, 1)}
        number = names.index(key)
        for axis, name in axes.items():
            out[number, _axis(call, number, key, axis)] = str(name)
    return out


def _of_shapes(call: Call, shapes: Any) -> Iterator[tuple[tuple[int, int], str]]:
    arguments = list(named_arguments(call.model, call.args, call.kwargs))
    if not isinstance(shapes, Mapping):
        given = list(shapes)
        if len(given) != len(arguments):
            raise ValueError(
                f"export: dynamic_shapes has {len(given)} entries for {len(arguments)} arguments"
            )
        shapes = {name: shape for (name, _), shape in zip(arguments, given, strict=True)}
    unknown = sorted(set(shapes) - {name for name, _ in arguments})
    if unknown:
        raise ValueError(
            f"export: dynamic_shapes names {unknown[0]!r}, which is no argument of the model: "
            f"{', '.join(name for name, _ in arguments)}"
        )
    number = 0
    for name, value in arguments:
        for tensor, shape in _paired(name, value, shapes.get(name)):
            axes = shape.items() if isinstance(shape, Mapping) else enumerate(shape or ())
            for axis, size in axes:
                if size is None or isinstance(size, int) or "STATIC" in str(size):
                    continue
                axis = _axis(call, number, name, axis)
                yield (number, axis), _name(size, f"{name}_dim_{axis}")
            assert tensor is call.inputs[number], "tensors are met in the order of the call"
            number += 1


def _paired(name: str, value: Any, shape: Any) -> Iterator[tuple[Any, Any]]:
    """Each tensor in nested tuples, lists and dicts with its entry of dynamic_shapes."""
    if isinstance(value, Handle):
        yield value, shape
    elif isinstance(value, (tuple, list)):
        for i, each in enumerate(value):
            yield from _paired(name, each, shape[i] if shape else None)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _paired(name, each, shape[key] if shape else None)


def _name(size: Any, default: str) -> str:
    """The name of a size: a string, or a Dim's __name__. Dim.DYNAMIC and Dim.AUTO get the
    default."""
    if isinstance(size, str):
        return size
    return str(getattr(size, "__name__", default))


def _axis(call: Call, number: int, name: str, axis: Any) -> int:
    rank = len(call.inputs[number].shape)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(
            f"export: {axis!r} is no axis of input {name!r}, which has shape "
            f"{tuple(call.inputs[number].shape)}"
        )
    return axis % rank

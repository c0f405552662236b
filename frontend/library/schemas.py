"""PyTorch's texts that declare operators: `mul(Tensor x, float by=1., *, Tensor? y) -> Tensor`."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, NamedTuple

from tilewright.ir.location import at_user_line

_WHOLE = re.compile(
    r"\s*(?P<name>[\w:.]+)?\s*\((?P<arguments>.*)\)\s*->\s*(?P<results>.+)\s*", re.S
)
_ARGUMENT = re.compile(
    r"\s*(?P<type>[A-Za-z]\w*(\((?P<alias>[^)]*)\)|(?P<mark>!))?(\[\d*\])?\??(\[\d*\])?\??)\s+"
    r"(?P<name>\w+)\s*"
    r"(=(?P<default>.*))?",
    re.S,
)
_WORDS = {"mean": 1, "sum": 2, "contiguous_format": None, "Mean": 1}


class Schema(NamedTuple):
    """name: with its overload behind a dot, "" for none. mutated: the arguments written to."""

    name: str
    signature: inspect.Signature
    mutated: frozenset[str]
    text: str


def parsed(text: str) -> Schema:
    """The parts of a declaration. ValueError if it isn't one."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError(
            "expected a schema such as 'name(Tensor x, int n=1) -> Tensor', got "
            f"{text!r}{at_user_line()}"
        )
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters, mutated = [], set()
    for part in _split(whole["arguments"]):
        if part.strip() == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        found = _ARGUMENT.fullmatch(part)
        if found is None:
            raise ValueError(
                f"{text!r}: expected an argument such as 'Tensor x', got {part!r}{at_user_line()}"
            )
        default = inspect.Parameter.empty
        if found["default"] is not None:
            default = _value(found["default"].strip())
        if found["mark"] or "!" in (found["alias"] or ""):
            mutated.add(found["name"])
        parameters.append(inspect.Parameter(found["name"], kind, default=default))
    return Schema(
        whole["name"] or "", inspect.Signature(parameters), frozenset(mutated), text.strip()
    )


def kinds_of_arguments(text: str) -> dict[str, str]:
    """The types of the arguments that a declaration has, as errors name them, by their names."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return {}
    found = (_ARGUMENT.fullmatch(part) for part in _split(whole["arguments"]))
    return {f["name"]: _SHOWN.get(f["type"], f["type"]) for f in found if f is not None}


_SHOWN = {"SymInt": "int"}
_REFUSED: dict[str, tuple[type, ...]] = {
    "Tensor": (str, int, float, complex, list, tuple, dict, type(None)),
    "int": (str, float, list, tuple, type(None)),
    "float": (str, list, tuple, type(None)),
    "str": (int, float, list, tuple, type(None)),
}
"""What PyTorch doesn't take for arguments of some types."""


def refused(value: Any, kind: str) -> bool:
    return isinstance(value, _REFUSED.get(kind, ()))


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _WORDS.get(text, text)


_TYPES = {
    "Tensor": "Tensor",
    "int": "SymInt",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "complex": "Scalar",
    "DType": "ScalarType",
    "dtype": "ScalarType",
    "device": "Device",
}


def written(function: Any, mutates: Any, name: str | None = None) -> str:
    """The schema of a function by its annotations. ValueError for one that has none."""
    parts, star = [], False
    signature = inspect.signature(function, eval_str=True)
    for i, p in enumerate(signature.parameters.values()):
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(
                "infer_schema(func): We do not support positional-only args, varargs, or "
                "varkwargs."
                f"{at_user_line()}"
            )
        if p.annotation is p.empty:
            raise ValueError(
                f"infer_schema(func): Parameter {p.name} must have a type annotation"
                f"{at_user_line()}"
            )
        kind = _type(p.annotation, p.name)
        if mutates == "unknown" or p.name in mutates:
            kind = kind.replace("Tensor", f"Tensor(a{i}!)", 1)
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parts.append(f"{kind} {p.name}{default}")
    result = signature.return_annotation
    if result is signature.empty:
        raise ValueError(
            "infer_schema(func): No return type annotation was provided. Please add one."
            f"{at_user_line()}"
        )
    if result is None:
        returns = "()"
    elif getattr(result, "__origin__", None) is tuple:
        returns = f"({', '.join(_type(each, 'return') for each in result.__args__)})"
    else:
        returns = _type(result, "return")
    return f"{name or ''}({', '.join(parts)}) -> {returns}"


def _default(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}."
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type(note: Any, name: str) -> str:
    origin: Any = getattr(note, "__origin__", None)
    args: tuple[Any, ...] = getattr(note, "__args__", ())
    if type(None) in args:
        (inner,) = (each for each in args if each is not type(None))
        return f"{_type(inner, name)}?"
    if (origin is not None and issubclass(origin, (list, tuple))) or origin in _SEQUENCES:
        return f"{_type(args[0], name)}[]"
    if set(args) == {int, float, bool}:
        return "Scalar"
    found = _TYPES.get(getattr(note, "__name__", ""))
    if found is None:
        raise ValueError(
            f"infer_schema(func): Parameter {name} has unsupported type {note}{at_user_line()}"
        )
    return found


_SEQUENCES = {__import__("collections.abc").abc.Sequence}

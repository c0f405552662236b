"""One declaration for each public op, beside the function itself.

A declaration lists PyTorch's names for the op (function, method, in-place forms, Python operators,
aliases) and the facts about its builders: autocast's class, the name of the gradient's node.
`publish.py` derives `torch.x`, `Tensor.x` and `x_` from it. The table in docs/ops.md and the cases
that the tests ask for are derived from it too.

    sin = unary("sin", on_float(ops.sin), casts=...)         elementwise, of one tensor
    mul = binary("mul", _mul, operator="mul")                 elementwise, of two
    @public("cumsum", _cumsum, in_place=True)                 any other: decorates the function
    def cumsum(input, dim, ...): ...
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilewright.ir.location import at_user_line
from tilewright.ir.op import Op

from .. import recording
from ..recording import Handle, at_once, clock, compounds, handles, record, resolve, tape, volatile
from ..recording.builders import Cast, Casts, Gradient, builder, facts
from .arguments import as_handle, into
from .promotion import can_cast
from .spellings import also_named, by_numpys_names, named_tensor, operands

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number

Function = Callable[..., Any]


class Unary(Protocol):
    def __call__(self, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...


class Binary(Protocol):
    def __call__(
        self, input: Number | Tensor, other: Number | Tensor, *, out: Tensor | None = None
    ) -> Tensor: ...


def without_operator(*primitives: Op) -> dict[Op, str]:
    """`unexportable`, where ONNX has no operator for the primitives."""
    return dict.fromkeys(
        primitives, "ONNX has no operator for it, and no short formula is accurate"
    )


@dataclass(frozen=True, slots=True)
class Declaration:
    """A public op.

    function, method: torch.x and Tensor.x. in_place, in_place_function: Tensor.x_ and torch.x_.
    operators: methods by the names that Python gives them. aliases: other names of all of these.
    operands: the number of tensors if the op is elementwise and takes nothing else, else 0.
    builders: the op's own builders, declared with it.
    unexportable: its primitives that have no ONNX form, each with the reason.
    """

    name: str
    function: Function | None = None
    method: Function | None = None
    in_place: Function | None = None
    in_place_function: Function | None = None
    operators: Mapping[str, Function] | None = None
    aliases: tuple[str, ...] = ()
    unexportable: Mapping[Op, str] | None = None
    operands: int = 0
    builders: tuple[Function, ...] = ()

    @property
    def casts(self) -> dict[str, Cast]:
        """The cast that autocast applies to the operands, by the kind of device."""
        known = [facts(build) for build in self.builders]
        return {kind: cast for each in known if each for kind, cast in each.casts.items()}

    @property
    def takes_out(self) -> bool:
        """Whether the op accepts a tensor `out` for its result."""
        return self.function is not None and "out" in inspect.signature(self.function).parameters


DECLARED: dict[str, Declaration] = {}
_F = TypeVar("_F", bound=Function)


def _declare(declaration: Declaration) -> None:
    if declaration.name in DECLARED:
        raise ValueError(f"{declaration.name} is declared twice")
    DECLARED[declaration.name] = declaration


def public(
    name: str,
    *builders: Function,
    function: bool = True,
    method: bool | Function = True,
    in_place: bool | Callable[[str, Function], Function] = False,
    in_place_function: bool = False,
    operators: Mapping[str, Function] | None = None,
    aliases: tuple[str, ...] = (),
    unexportable: Mapping[Op, str] | None = None,
    casts: Casts = None,
    gradient: Gradient = None,
) -> Callable[[_F], _F]:
    """Declare the decorated function as a public op, together with its builders.

    method: whether tensors have the function as a method, or the method itself, if its arguments
        come in another order.
    in_place: whether there is `x_`, or the function that makes it from the method; `overwriting` by
        default.
    """
    for build in builders:
        # A builder with a declaration of its own is only named here.
        if facts(build) is None or casts is not None or gradient is not None:
            builder(name, casts=casts, gradient=gradient)(build)

    def declare(written: _F) -> _F:
        plain, written = written, _spelled(written)
        own = (written if _has_options(plain) else plain) if method is True else method or None
        write = None
        if in_place:
            assert own is not None, f"{name}_ is made of a method"
            write = (overwriting if in_place is True else in_place)(name, own)
        _declare(
            Declaration(
                name,
                written if function else None,
                own,
                write,
                write if in_place_function else None,
                operators,
                aliases,
                unexportable,
                builders=builders,
            )
        )
        return written

    return declare


def _spelled(function: _F) -> _F:
    """The function, which takes NumPy's names too. One that takes any options sees to it itself."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return function
    return by_numpys_names(function)


def _has_options(function: Function) -> bool:
    """Whether NumPy has other names for more than the first argument, which is a method's own."""
    code = getattr(function, "__code__", None)
    return code is not None and not {"other", "dim", "keepdim"}.isdisjoint(code.co_varnames)


def unary(
    name: str,
    build: Function,
    *,
    in_place: bool = True,
    in_place_function: bool = True,
    operator: str | None = None,
    aliases: tuple[str, ...] = (),
    unexportable: Mapping[Op, str] | None = None,
    casts: Casts = None,
    gradient: Gradient = None,
    same_out: bool = False,
) -> Unary:
    """Declare an elementwise op of one tensor; returns torch.x. same_out: whether `out` must have
    the dtype of the result."""
    builder(name, casts=casts, gradient=gradient)(build)
    method = recording.unary(build, name, _doc(name, build))
    write = overwriting(name, method) if in_place else None
    function = of_one(name, build, same_out)
    _declare(
        Declaration(
            name,
            function,
            method,
            write,
            write if in_place_function else None,
            {f"__{operator}__": method} if operator else None,
            aliases,
            unexportable,
            operands=1,
            builders=(build,),
        )
    )
    return function


def binary(
    name: str,
    build: Function,
    *,
    numbers: bool = True,
    number_first: bool = True,
    both_numbers: bool = False,
    in_place: bool = True,
    in_place_function: bool = False,
    operator: str | None = None,
    compares: str | None = None,
    second: str = "other",
    aliases: tuple[str, ...] = (),
    unexportable: Mapping[Op, str] | None = None,
    casts: Casts = None,
    gradient: Gradient = None,
    floats: bool = False,
    widens: bool = False,
) -> Binary:
    """Declare an elementwise op of two tensors; returns torch.x.

    numbers: whether the second operand may be a number. number_first: whether the first may, too,
    of the function; not of comparisons. both_numbers: whether both may, at once. operator,
    compares: Python's name for the op, if it is an arithmetic operator or a comparison. second:
    PyTorch's name for the second operand. floats, widens: as in `builder`.
    """
    builder(name, casts=casts, gradient=gradient, floats=floats, widens=widens)(build)
    method = recording.binary(build, name, numbers=numbers, doc=_doc(name, build))
    write = recording.in_place_binary(build, overwriting(name, method)) if in_place else None
    numbers_first = numbers and number_first and not compares
    function = of_two(name, build, method, numbers_first, second, both_numbers)
    if second != "other":
        method = also_named(**{second: "other"})(method)
    _declare(
        Declaration(
            name,
            function,
            method,
            write,
            write if in_place_function else None,
            arithmetic(operator, build)
            if operator
            else comparison(compares, build)
            if compares
            else None,
            aliases,
            unexportable,
            operands=2,
            builders=(build,),
        )
    )
    return function


def of_one(name: str, build: Function, same_out: bool = False) -> Unary:
    """The function of a tensor that records `build`."""

    def function(input: Any = None, *, out: Tensor | None = None, **numpys: Any) -> Tensor:
        given = named_tensor(name, input, numpys)
        made = record(build, given)
        if out is None:
            return made
        # The absolute values of complex numbers are real, and may be written to either.
        return into(out, made, cast=not same_out or made.dtype is not given.dtype)

    _name(function, name, build)
    return function


def of_two(
    name: str,
    build: Function,
    method: Function,
    numbers: bool = True,
    second: str = "other",
    both: bool = False,
) -> Binary:
    """The function of two tensors, made of their method. numbers: whether the first may be a
    number. second: another name of the second operand. both: whether both may be numbers."""
    swapped = recording.binary(build, name, swapped=True)

    def function(
        input: Any = None, other: Any = None, *, out: Tensor | None = None, **numpys: Any
    ) -> Tensor:
        if numpys:
            input, other = operands(name, {"input": input, "other": other}, numpys, second)
        if isinstance(input, Handle):
            result = method(input, other)
        elif isinstance(other, Handle) and numbers:
            result = swapped(other, input)
        else:
            result = method(as_handle(input), other) if both else NotImplemented
        if result is NotImplemented:
            raise TypeError(
                f"{name}(): expected at least one Tensor and numbers, got {type(input).__name__} "
                f"and {type(other).__name__}{at_user_line()}"
            )
        return into(out, result)

    _name(function, name, build)
    return function


def _doc(name: str, build: Function) -> str:
    return f"{name}, elementwise. {build.__doc__ or ''}".strip()


def _name(function: Function, name: str, build: Function) -> None:
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__.partition(".")[0]  # pickle finds it as torch.x
    function.__doc__ = _doc(name, build)


def arithmetic(name: str, build: Function, by_number: Function | None = None) -> dict[str, Any]:
    """Python's operator `name` made from a builder: a ∘ b, its reflected and its in-place form.

    by_number: the builder for a number ∘ a tensor, if it is a different one.
    """
    swapped = recording.binary(by_number or build, f"__r{name}__", swapped=True)
    write = overwriting(name, recording.binary(build, f"__i{name}__"))
    return {
        f"__{name}__": recording.binary(build, f"__{name}__"),
        f"__r{name}__": swapped,
        f"__i{name}__": recording.in_place_binary(build, write),
    }


def comparison(name: str, build: Function) -> dict[str, Any]:
    """Python's comparison `name` made from a builder. No tensor equals None or a string."""
    method = recording.binary(build, f"__{name}__")

    def compare(self: Tensor, other: Number | Tensor) -> Tensor:
        if other is None or isinstance(other, str):
            return NotImplemented
        return method(self, other)

    return {f"__{name}__": compare}


def overwriting(name: str, method: Function) -> Function:
    """The in-place form of a method: the method's result overwrites the tensor."""

    def write(self: Any, *args: Any, **options: Any) -> Any:
        recording.claim()
        if len(args) == 1 and not options and at_once.updated(self, name, args[0]):
            return self
        if clock.volatile and self._node is not None:
            volatile.value(self)  # what waits is computed, so that this call need not wait
        # No epoch ends in between: the op reads the old value and doesn't save it for later.
        before, known = clock.holding, len(handles)
        since = tape.now() if clock.volatile else math.inf
        try:
            clock.holding = before + 1
            result = method(self, *args, **options)
            if result is NotImplemented:
                return result
            if compounds.is_compound(result):  # a product of a dense tensor and a sparse one
                result = result.to_dense()
            if clock.volatile:
                tape.let_overwrite(self, result, since)
                if volatile.replaced(self, result):
                    return self
            node = resolve(result)
            if len(handles) > known and handles[-1] is result:
                handles.pop()  # nobody has it, so it is no other tensor with this value
        finally:
            clock.holding = before
        own = self.dtype
        if node.dtype is not own and not can_cast(node.dtype, own):
            raise RuntimeError(
                f"result type {node.dtype} can't be cast to the desired output type "
                f"{own}{at_user_line()}"
            )
        return recording.assign(self, node)

    write.__name__ = write.__qualname__ = f"{name}_"
    return write

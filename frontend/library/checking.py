"""torch.library.opcheck: whether an op does what its registrations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import recording
from ..autograd import grad
from ..recording import Handle
from ..replay.compiled import Compiled
from ..testing import assert_close
from .custom import CustomOpDef, _tensors, defined

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class OpCheckError(Exception):
    """A check of `opcheck` that failed."""


class MetadataMismatchError(Exception):
    """Results of `register_fake` that are unlike those of the op."""


class _Checked:
    """An op that is checked, with its arguments.

    own: its definition, if it is a user's. tolerances: those of values that should be close.
    """

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **tolerances: Any):
        self.op, self.args, self.kwargs, self.tolerances = op, args, kwargs, tolerances
        self.own = op if isinstance(op, CustomOpDef) else defined(_full_name(op))
        name = _full_name(op) if self.own is None else self.own._qualname
        self.name = f"{name.replace('::', '.')}.default"

    def arguments(self, of: Callable[[Any], Any]) -> Arguments:
        """The arguments with `of(t)` in the place of each tensor."""
        named = {name: _replaced(v, of) for name, v in self.kwargs.items()}
        return tuple(_replaced(v, of) for v in self.args), named

    def schema(self) -> None:
        """The op writes to no argument but those that it names, and returns none of them."""
        args, kwargs = self.arguments(_copy)
        inputs = args
        if self.own is not None:
            inputs, kwargs = self.own._bound(args, kwargs)
        before = [t.detach().clone() for t in _tensors((*inputs, *kwargs.values()))]
        self.op(*args, **kwargs)
        left = iter(before)
        names = () if self.own is None else self.own._positional
        mutated = frozenset() if self.own is None else self.own._mutated
        for i, value in enumerate((*inputs, *kwargs.values())):
            name = (*names, *kwargs)[i] if self.own is not None else str(i)
            for t, old in zip(_tensors((value,)), left, strict=False):
                if name not in mutated and not _same(t.detach(), old):
                    raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")

    def autograd_registration(self) -> None:
        """The op takes tensors that require gradients: each op here has a derivative, or an error
        in the backward pass."""
        args, kwargs = self.arguments(_copy)
        self.op(*args, **kwargs)

    def faketensor(self) -> None:
        """The function of `register_fake` gives results of the op's shapes and dtypes."""
        args, kwargs = self.arguments(_copy)
        real = [*_tensors((self.op(*args, **kwargs),))]
        function = self.op if self.own is None else self.own._fake
        if function is None:
            if not real:
                return
            raise RuntimeError(
                f"There was no fake impl registered for {self.own!r}. Please use `register_fake` "
                "to add one"
            )
        args, kwargs = self.arguments(lambda t: t.detach().to("meta"))
        fake = [*_tensors((function(*args, **kwargs),))]
        if len(fake) != len(real):
            raise self._unlike(f"{len(real)} tensors and {len(fake)}")
        for own, other in zip(real, fake, strict=True):
            for what in ("shape", "dtype"):
                a, b = getattr(own, what), getattr(other, what)
                if a != b:
                    raise self._unlike(f"{what.capitalize()}s {a} and {b} are not equal!")

    def _unlike(self, reason: str) -> MetadataMismatchError:
        return MetadataMismatchError(
            f"When comparing the output of {self.name} on FakeTensor and concrete Tensors, found "
            f"mismatched tensor metadata: {reason}"
        )

    def compiled(self) -> None:
        """The op gives the same results and gradients in a compiled function."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.op(*args, **kwargs)

        eager = self._outcome(call)
        compiled = Compiled(call, fullgraph=False)
        for _ in range(3):  # two calls are watched, the third one is replayed
            for own, found in zip(eager, self._outcome(compiled), strict=True):
                assert_close(found, own, equal_nan=True, **self.tolerances)

    def _outcome(self, function: Callable[..., Any]) -> list[Any]:
        """The results, and the gradients of their sum."""
        args, kwargs = self.arguments(_copy)
        results = [*_tensors((function(*args, **kwargs),))]
        leaves = [t for t in _tensors((*args, *kwargs.values())) if t.requires_grad]
        roots = [t for t in results if t.requires_grad]
        if leaves and roots:
            seeds = [t.new_ones(t.shape) for t in roots]
            given = grad(roots, leaves, seeds, allow_unused=True)
            results += [g for g in given if g is not None]
        return [t.detach() for t in results]


CHECKS = {
    "test_schema": _Checked.schema,
    "test_autograd_registration": _Checked.autograd_registration,
    "test_faketensor": _Checked.faketensor,
    "test_aot_dispatch_static": _Checked.compiled,
    "test_aot_dispatch_dynamic": _Checked.compiled,
}
USUAL = tuple(name for name in CHECKS if name != "test_aot_dispatch_static")


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = USUAL,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Check an op with some arguments, which stay as they are.

    op: what `custom_op` returns, or `torch.ops.namespace.name.default`.
    test_utils: the checks to make: "test_schema" (the op writes only to the arguments that it
        names), "test_autograd_registration", "test_faketensor" (`register_fake` gives the right
        shapes and dtypes), "test_aot_dispatch_dynamic" and "test_aot_dispatch_static" (a compiled
        function gives the same results and gradients, up to `atol` and `rtol`).
    raise_exception: whether a failure is an OpCheckError.
    Returns "SUCCESS" or the exception for each check.
    """
    if not (isinstance(op, CustomOpDef) or hasattr(op, "overloadpacket")):
        raise ValueError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. "
            f"torch.ops.aten.sin.default, got {type(op)}{at_user_line()}"
        )
    wanted = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(wanted) <= CHECKS.keys():
        raise ValueError(
            f"opcheck(op, ..., test_utils={wanted}), expected test_utils to be subset of "
            f"{tuple(CHECKS)} but it was not{at_user_line()}"
        )
    checked = _Checked(op, args, kwargs or {}, atol=atol, rtol=rtol)
    found: dict[str, Any] = {}
    for name in wanted:
        try:
            with recording.grad_mode(True):
                CHECKS[name](checked)
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error}{at_user_line()}"
                ) from error
            found[name] = error
    return found


def _full_name(op: Any) -> str:
    return str(op.overloadpacket._qualified_op_name)


def _replaced(value: Any, of: Callable[[Any], Any]) -> Any:
    if isinstance(value, Handle):
        return of(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(v, of) for v in value)
    return value


def _copy(t: Any) -> Any:
    return t.detach().clone().requires_grad_(t.requires_grad)


def _same(a: Any, b: Any) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())

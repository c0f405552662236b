"""What is declared of builders, the functions of nodes that `record` takes.

A declaration belongs to the builder itself. Under what name its definition stands says nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tilewright.ir.op import Op


class Cast(enum.Enum):
    """What autocast does to the floating operands of a call, except those of float64."""

    LOWER = "to the dtype of the mode"
    LOWER_BEFORE = "as LOWER, but only the operands that `recording.lowered` is given"
    FLOAT32 = "to float32"
    WIDEST = "to the widest dtype among them"
    FIRST = "to the dtype of the first"
    REFUSED = "the call is an error"


LOWER, LOWER_BEFORE, FLOAT32, WIDEST, FIRST, REFUSED = Cast
KINDS = ("cpu", "cuda")  # the kinds of devices that autocast tells apart

Casts = Cast | Mapping[str, Cast] | None
Gradient = str | Callable[[Sequence[Any]], str] | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a builder.

    name: that of its calls, in PyTorch's words. casts: what autocast does, by the kind of device.
    gradient: the name of its `grad_fn`, or a function that makes it of a call's arguments; by
    default it follows from `name`. floats: integers become floats in it, so a number beside them
    stays what it is. widens: it doesn't round a number beside a half. steps: makes of a call's
    arguments the calls that PyTorch makes beneath it, for one that it computes in several. leads:
    the operand whose gradient arrives before those of the others, if it isn't the first. picks: the
    operand of which only some elements are read, at positions that another one has.
    """

    name: str = ""
    casts: Mapping[str, Cast] = field(default_factory=dict)
    gradient: Gradient = None
    floats: bool = False
    widens: bool = False
    steps: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    leads: int = 0
    picks: int | None = None

    def grad_fn(self, args: Sequence[Any]) -> str:
        """The name that `grad_fn` shows for a call with `args`."""
        if self.gradient is None:
            return f"{camel(self.name)}Backward0"
        return self.gradient if isinstance(self.gradient, str) else self.gradient(args)


class Step(NamedTuple):
    """A call of PyTorch's that is a part of one here. name: that of its `grad_fn`. operands: nodes,
    or further steps."""

    name: str
    operands: tuple[Any, ...]

    @property
    def requires_grad(self) -> bool:
        return any(o.requires_grad for o in self.operands)


_FACTS: dict[Any, Facts] = {}
_Build = TypeVar("_Build", bound=Callable[..., Any])


def builder(
    name: str,
    *,
    casts: Casts = None,
    gradient: Gradient = None,
    floats: bool = False,
    widens: bool = False,
    steps: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    leads: int = 0,
    picks: int | None = None,
) -> Callable[[_Build], _Build]:
    """Declare a builder: a decorator, or called with a builder that some function made."""
    said = Facts(name, by_kind(casts), gradient, floats, widens, steps, leads, picks)

    def declare(build: _Build) -> _Build:
        before = _FACTS.setdefault(build, said)
        if before != said:
            raise ValueError(f"a builder is declared twice: as {before} and as {said}")
        return build

    return declare


BLIND: set[Any] = set()


def blind(build: _Build) -> _Build:
    """Declare that a builder never looks at the value of a number: it makes the same op of all."""
    BLIND.add(build)
    return build


def is_blind(build: Any) -> bool:
    return build in BLIND


takes_sizes: set[Any] = set()
"""Builders whose last argument is a shape, and nothing that the choice of ops depends on."""
joins: dict[Any, bool] = {}
"""Builders that join tensors along an axis, their last argument -> whether it is a new one."""
refuses_bools: set[Any] = set()
"""Builders that refuse tensors of bools, and Python's True and False with them."""


def by_kind(casts: Casts) -> dict[str, Cast]:
    """What autocast does by the kind of device; one class alone is that of all kinds."""
    return dict.fromkeys(KINDS, casts) if isinstance(casts, Cast) else dict(casts or {})


def facts(build: Any) -> Facts | None:
    """What is declared of a builder, if anything is."""
    return _FACTS.get(build)


def all_facts() -> list[tuple[Any, Facts]]:
    """The declared builders."""
    return list(_FACTS.items())


def name_of(build: Any) -> str:
    """The name of a builder's calls: as declared, or that of the op if it is one."""
    known = _FACTS.get(build)
    return known.name if known is not None else build.name if isinstance(build, Op) else ""


def camel(name: str) -> str:
    """`index_put` as `IndexPut`."""
    return "".join(w[:1].upper() + w[1:] for w in name.strip("_").split("_"))

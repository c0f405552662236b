"""Kernels of several phases. Each phase is a function, and its chunks are a range of the kernel's.

A launch runs the phases one after another; a phase sees all that earlier ones wrote to the launch's
workspace. Work that doesn't fit in the workspace at once is done in rounds, each with all phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..kernel import Buffer
from .arguments import Arguments
from .body import Body
from .code import Code
from .types import Ref

PARAMETERS = "ptr %args, i64 %chunk, i64 %round"


@dataclass(frozen=True)
class Phase:
    """function: the name of a `void function(PARAMETERS)`, whose chunks count from 0."""

    function: str
    chunks: int


@dataclass(frozen=True)
class Written:
    """The functions of a kernel, and the facts that a launch needs: see `Emitted`."""

    text: str
    arguments: Arguments
    phases: tuple[int, ...]
    workspace: int = 0
    prepared: frozenset[Buffer] | None = None


def chunks_of(phases: Sequence[Phase], rounds: int = 1) -> tuple[int, ...]:
    """The chunks of each phase, as in `Emitted.phases`."""
    return tuple(p.chunks for p in phases) * rounds


def write_kernel(body: Body, phases: Sequence[Phase], rounds: int = 1) -> None:
    """Fills `body`, the function `kernel(args, chunk)`, which calls the phase of the chunk."""
    code = body.code
    rest = Ref("%chunk", "i64")
    turn = Ref("0", "i64")
    if rounds > 1:
        count = body.size(sum(p.chunks for p in phases), "chunks of a round", baked=False)
        turn = code.binary("udiv", rest, count)
        rest = code.binary("urem", rest, count)
    done = code.fresh_label("done")
    for phase in phases:
        call = f"call void @{phase.function}(ptr %args, {rest.typed}, {turn.typed})"
        if phase is phases[-1]:
            code.add(call)
            break
        count = body.size(phase.chunks, ("chunks of", phase.function), baked=False)
        own = code.compare("icmp ult", rest, count)
        here, later = code.fresh_label("phase"), code.fresh_label("later")
        code.add(f"br i1 {own.text}, label %{here}, label %{later}")
        code.level.block(here)
        code.add(call)
        code.add(f"br label %{done}")
        code.level.block(later)
        rest = code.binary("sub", rest, count)
    if len(phases) > 1:
        code.add(f"br label %{done}")
        code.level.block(done)


def function(name: str) -> Code:
    """The code of a phase, to be filled."""
    return Code(name, PARAMETERS, internal=True)

"""The results of the Triton emitter: source text, and the arguments of a launch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tilewright.ir.dtype import NARROW, DType
from tilewright.ir.node import format_location

from ..kernel import Kernel
from ..kernel.index import Check
from .prelude import used

IMPORTS = "import triton\nimport triton.language as tl\n"
_EARLY = "from triton.language.extra import cuda\n"
_LIBDEVICE = "from triton.language.extra import libdevice\n"

POINTER = {
    "bool": "*i8",
    "uint8": "*u8",
    "uint16": "*u16",
    "uint32": "*u32",
    "uint64": "*u64",
    "int8": "*i8",
    "int16": "*i16",
    "int32": "*i32",
    "int64": "*i64",
    "float8_e4m3fn": "*u8",
    "float8_e5m2": "*u8",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
}
"""Pointer types as Triton's signatures spell them. Bools are bytes in memory, and so are float8,
since not every GPU knows their types."""


LEAST_DIVISOR = 4
"""The least divisor of sizes that the compiler is told. Four floats are a vector."""

_NUMBERS = ("scalar", "number", "matrix")
"""The roles of arguments for which the compiler is told no divisor."""

ALIGNMENT = "ALIGNMENT"
"""The constexpr of a bundle: the addresses in its table are multiples of it."""


def scalar_type(dtype: DType) -> str:
    """The type of a number passed at launch. Narrow floats travel as float32, bools as int32."""
    if dtype.name == "bool":
        return "i32"
    if dtype in NARROW:
        return "fp32"
    return POINTER[dtype.name][1:]


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """One parameter of the generated function that is passed at launch.

    role tells what is passed:
        buffer    the buffer number `value` among the kernel's outputs followed by its inputs
        place     the address `value[1]` bytes into the buffer number `value[0]`
        matrix    a tensor descriptor of the buffer number `value[0]` with the sizes `value[1]`;
                  neighbours along each of its dimensions are `value[2]` elements apart
        scalar    the number at place `value` of the kernel's scalars
        size      the integer `value`
        number    the number `value`, of which the compiler is told nothing
        table     an int32 or int64 array with the contents `value`, constant over launches
        pointers  an int64 array of addresses; entry i is that of buffer number `value[i]` among
                  the outputs followed by the inputs
        errors    an int64 array of one zero for each entry of `Emitted.checks`
    """

    name: str
    type: str
    role: str
    value: Any = None


@dataclass(frozen=True, eq=False)
class Emitted:
    """A kernel as Triton source, and all that compiling and launching it takes.

    name: the function's name in the source.
    body: the source without its opening comment; kernels of equal structure have equal bodies.
    lines: the statements of the function.
    header: the opening comment, with the user's lines.
    arguments: in the order of the function's parameters, before the constexprs.
    constexprs: block sizes by parameter name; for a user's kernel, its own constexprs.
    grid: programs to launch, along up to three axes.
    checks: the positions read at run time. Word i of the errors array stays 0, or becomes
        2 * position + 1 for a position that checks[i] does not allow.
    aligned: whether all buffers are at multiples of 16 bytes.
    plain: the same kernel without tensor descriptors, whose memory has to be aligned.
    function: the triton.JITFunction of a kernel that the user wrote.
    contracts: whether the compiler may fuse a product and a sum into one operation. It may in
        attention, which is one op to the user, and in the user's own kernels. Elsewhere a value's
        bits would depend on the kernel that computes it.
    registers: the most of a thread; 0 if the compiler decides.
    early: whether programs wait by themselves for the launches ahead of theirs.
    """

    name: str
    body: str
    lines: tuple[str, ...]
    header: str
    arguments: tuple[Argument, ...]
    constexprs: dict[str, Any]
    grid: int | tuple[int, ...]
    num_warps: int
    num_stages: int
    checks: tuple[Check, ...] = field(default=())
    aligned: bool = True
    plain: Emitted | None = None
    function: Any = None
    contracts: bool = False
    registers: int = 0
    early: bool = False

    @property
    def programs(self) -> tuple[int, int, int]:
        """The grid along all three axes."""
        x, y, z, *_ = (*((self.grid,) if isinstance(self.grid, int) else self.grid), 1, 1)
        return x, y, z

    @property
    def source(self) -> str:
        return self.header + self.body

    @cached_property
    def sha(self) -> str:
        """The hash of the code, independent of the user's lines."""
        if self.function is not None:
            return str(self.function.cache_key)  # covers the functions that it calls
        return hashlib.sha256(self.body.encode()).hexdigest()[:32]

    @property
    def signature(self) -> dict[str, str]:
        """Parameter name to Triton type, constexprs included."""
        types = {a.name: a.type for a in self.arguments}
        return types | dict.fromkeys(self.constexprs, "constexpr")

    @property
    def divisible(self) -> dict[str, int]:
        """Divisors of parameters: 16 for addresses (memory is allocated so), and 16, 8 or 4 for
        sizes; other parameters are not listed.

        The compiler needs both to make vector loads: a size without a known divisor leaves a mask
        that may cut through a vector. Eight halves are a vector, and so are four floats.
        """
        found = {}
        for each in self.arguments:
            if each.role == "size":
                power = math.gcd(each.value, 16)
                if power >= LEAST_DIVISOR:
                    found[each.name] = power
            elif each.role == "place":
                if self.aligned and not each.value[1] % 16:
                    found[each.name] = 16
            elif each.role not in _NUMBERS and (self.aligned or each.role != "buffer"):
                found[each.name] = 16
        return found

    def failure(self, error: Exception) -> RuntimeError:
        """The error to raise when a user's kernel raises `error`."""
        where = self.header.strip("# \n")
        return RuntimeError(f"kernel {self.name} ({where}): {type(error).__name__}: {error}")

    def begun_early(self) -> Emitted:
        """The same kernel in a form whose programs may start while the launches ahead of theirs end
        (programmatic dependent launch, from sm_90 on). They wait before they touch memory, and so
        hide the time that a start takes. As each waits, those that come later find the memory of
        all earlier launches written, too. User's kernels stay as they are."""
        if self.function is not None or self.early:
            return self
        wait = "    cuda.gdc_wait()\n    cuda.gdc_launch_dependents()\n"
        before, start, rest = self.body.partition(f"def {self.name}(")
        parameters, end, lines = rest.partition("\n):\n")
        before = before.replace(IMPORTS, IMPORTS + _EARLY, 1)
        body = before + start + parameters + end + wait + lines
        plain = self.plain and self.plain.begun_early()
        return replace(self, body=body, plain=plain, early=True)

    def unaligned(self) -> Emitted:
        """The same kernel for buffers at any address, such as rows of a matrix."""
        if self.plain is not None:
            return self.plain.unaligned()
        constexprs = dict(self.constexprs)
        if ALIGNMENT in constexprs:
            constexprs[ALIGNMENT] = 1
        return replace(self, constexprs=constexprs, aligned=False)


def failed(check: Check, word: int) -> Exception:
    """The error of a check for which a launch left `word`."""
    return check.error((word - 1) // 2)


def source(
    name: str, arguments: tuple[Argument, ...], constexprs: dict[str, int], lines: list[str]
) -> str:
    """The module: imports, the functions of the prelude that the kernel uses, the kernel."""
    parameters = [a.name for a in arguments] + [f"{c}: tl.constexpr" for c in constexprs]
    text = "\n".join(
        [
            "@triton.jit",
            f"def {name}(",
            *(f"    {p}," for p in parameters),
            "):",
            *(f"    {line}" for line in lines),
            "",
        ]
    )
    functions = "".join(f"{f}\n\n\n" for f in used(text))
    imports = IMPORTS + (_LIBDEVICE if "libdevice." in functions else "")
    return f"{imports}\n\n{functions}{text}"


def header(*kernels: Kernel) -> str:
    """The opening comment: what the kernel computes, by op and user's line."""
    notes = dict.fromkeys(note for kernel in kernels for note in kernel.notes)
    lines = [f"# {op} ({format_location((file, line))})" for op, file, line in notes]
    return "".join(f"{line}\n" for line in lines) + ("\n" if lines else "")

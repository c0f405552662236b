"""Kernels compiled to final binaries; the GPU need not be present.

Triton's own cache on disk (TRITON_CACHE_DIR) serves kernels that any process compiled before.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, Usage, default_schedule
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import Emitted, emit

from . import cubin
from .interpret.modules import LOCK, adopted, load_source

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class Request:
    """The inputs of a compilation, as plain data for other processes.

    A user's kernel is compiled in its own process: `body` is only a part of it, `sha` covers all.
    """

    name: str
    body: str
    sha: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    divisible: dict[str, int]
    num_warps: int
    num_stages: int
    contracts: bool
    target: str
    registers: int = 0


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The layout in shared memory that the compiler chose for a kernel's tiles of a matrix.

    element: CUtensorMapDataType; size: bytes of an element. swizzle: CUtensorMapSwizzle. box: the
    lengths of one copy, the outermost dimension first.
    """

    element: int
    size: int
    swizzle: int
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel.

    asm: text of each stage by name (ttir, ttgir, llir, and ptx or amdgcn).
    binary: the file that a driver loads, a cubin or an hsaco.
    registers: 32-bit registers of a thread. spills: bytes spilled to memory, for a thread on
        NVIDIA's targets; on AMD's four times the number of spilled registers.
    shared: bytes of shared memory of a program. num_warps: warps of a program, including any that
        the compiler added.
    scratch: bytes of device memory that each program needs for itself.
    columns: of the memory of tensor cores that a program takes. With more than there are, Triton
        makes an empty kernel.
    maps: layouts of the matrices passed as descriptors; none where the hardware doesn't copy by
        them.
    entry: the kernel's name in the binary where it isn't `name`: a user's kernel may have a `repr`.
    """

    name: str
    target: str
    asm: dict[str, str]
    binary: bytes
    registers: int
    spills: int
    shared: int
    num_warps: int
    scratch: int
    maps: tuple[TensorMap, ...] = ()
    entry: str = ""
    columns: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(self.registers, self.shared, self.spills, self.num_warps, self.columns)


def request(emitted: Emitted, target: str) -> Request:
    return Request(
        name=emitted.name,
        body=emitted.body,
        sha=emitted.sha,
        signature=emitted.signature,
        constexprs=emitted.constexprs,
        divisible=emitted.divisible,
        num_warps=emitted.num_warps,
        num_stages=emitted.num_stages,
        contracts=emitted.contracts,
        target=target,
        registers=emitted.registers,
    )


def compile_offline(
    kernel: Kernel | Bundle, target: str, schedule: Schedule | None = None
) -> Compiled:
    """`kernel` compiled for `target`: one of `TARGETS`, or another of Triton's."""
    return compile_request(
        request(emit(kernel, schedule or default_schedule(kernel, gpu(target))), target)
    )


def compile_request(asked: Request) -> Compiled:
    """Compile in this process. Its threads take turns."""
    import triton
    from triton.compiler import ASTSource

    function = adopted(asked.sha) or getattr(load_source(asked.sha, asked.body), asked.name)
    names = function.arg_names
    source = ASTSource(
        function,
        {n: asked.signature[n] for n in names},
        {(names.index(n),): v for n, v in asked.constexprs.items()},
        {(names.index(n),): [["tt.divisibility", d]] for n, d in asked.divisible.items()},
    )
    options = {
        "num_warps": asked.num_warps,
        "num_stages": asked.num_stages,
        "enable_fp_fusion": asked.contracts,
    }
    if asked.registers:
        options["maxnreg"] = asked.registers
    with LOCK:
        compiled = triton.compile(source, target=_gpu(asked.target), options=options)
    asm = {k: v for k, v in compiled.asm.items() if isinstance(v, str)}
    binary = compiled.asm["hsaco" if asked.target.startswith("gfx") else "cubin"]
    registers, spills = _usage(asm, binary)
    return Compiled(
        name=asked.name,
        target=asked.target,
        asm=asm,
        binary=binary,
        registers=registers,
        spills=spills,
        shared=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        scratch=getattr(compiled.metadata, "global_scratch_size", 0),
        maps=tuple(map(_tensor_map, getattr(compiled.metadata, "tensordesc_meta", None) or ())),
        entry="" if compiled.metadata.name == asked.name else compiled.metadata.name,
        columns=getattr(compiled.metadata, "tmem_size", None) or 0,
    )


_ELEMENTS = {8: 10, 9: 8, 10: 9}
"""CUtensorMapDataType by the number of the same type in descriptors made on the device, where they
differ."""


def _tensor_map(about: dict[str, Any]) -> TensorMap:
    kind = about["elem_type"]
    box = tuple(about["block_size"])
    return TensorMap(_ELEMENTS.get(kind, kind), about["elem_size"], about["swizzle"], box)


def _gpu(target: str) -> Any:
    from triton.backends.compiler import GPUTarget

    if target.startswith("sm_"):
        return GPUTarget("cuda", int(target[3:]), 32)
    if target.startswith("gfx"):
        return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
    raise ValueError(f"expected a target such as {', '.join(TARGETS)}, got {target!r}")


_FRAME_STEP = 8
"""A stack frame is a multiple of so many bytes."""


def _usage(asm: dict[str, str], binary: bytes) -> tuple[int, int]:
    """(registers, bytes of spills)."""
    if "amdgcn" in asm:
        text = asm["amdgcn"]
        spilled = sum(int(n) for n in re.findall(r"\.[sv]gpr_spill_count:\s*(\d+)", text))
        found = re.search(r"\.vgpr_count:\s*(\d+)", text)
        return int(found[1]) if found else 0, 4 * spilled
    registers, frame = cubin.usage(binary)
    # The frame also has the arrays of a sine's way for large arguments, which no schedule changes.
    arrays = sum(map(int, re.findall(r"__local_depot\d+\[(\d+)\]", asm.get("ptx", ""))))
    return registers, max(frame - -(-arrays // _FRAME_STEP) * _FRAME_STEP, 0)


def compile_many(requests: Sequence[Request], processes: int | None = None) -> list[Compiled]:
    """Compile in parallel processes, as threads gain little. Results are in order.

    Raises the first failure, with the compiler's message.
    """
    here = [adopted(r.sha) is not None for r in requests]
    if any(here):
        own = compile_many([r for r, users in zip(requests, here) if not users], processes)
        rest = iter(own)
        return [compile_request(r) if users else next(rest) for r, users in zip(requests, here)]
    count = max(1, min(processes or os.cpu_count() or 1, len(requests)))
    if count == 1:
        return [compile_request(r) for r in requests]
    shares = [list(requests[i::count]) for i in range(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tilewright.runtime.offline"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for _ in shares
    ]
    for worker, share in zip(workers, shares):
        assert worker.stdin is not None
        worker.stdin.write(pickle.dumps(share))
        worker.stdin.close()
    out: list[Compiled | None] = [None] * len(requests)
    failure: Exception | None = None
    for place, worker in enumerate(workers):
        assert worker.stdout is not None
        with worker.stdout:
            data = worker.stdout.read()
        if worker.wait() or not data:
            failure = failure or RuntimeError(f"a compiling process died with {worker.returncode}")
            continue
        results = pickle.loads(data)
        if isinstance(results, Exception):
            failure = failure or results
        else:
            out[place::count] = results
    if failure is not None:
        raise failure
    return [c for c in out if c is not None]


def _work() -> None:
    """A worker: reads requests from stdin, writes results or an error to stdout."""
    channel = os.dup(1)
    os.dup2(2, 1)  # the compiler's prints must not mix with the answer
    requests = pickle.loads(sys.stdin.buffer.read())
    try:
        answer: Any = [compile_request(r) for r in requests]
    except Exception as error:
        answer = RuntimeError(f"{type(error).__name__}: {error}")
    with os.fdopen(channel, "wb") as out:
        out.write(pickle.dumps(answer))


if __name__ == "__main__":
    # Pickled classes must be those of the importable module, not of `__main__`.
    from .offline import _work as work

    work()

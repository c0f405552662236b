"""LLVM IR to machine code in this process, through a cache of object code on disk."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .. import cache, forks
from . import host, lasting, pack

if TYPE_CHECKING:
    from tilewright.codegen.llvm.machine import Machine

_FORMAT = 2  # increased when the code compiled from a given text changes
_LOCK = forks.waits_for_lock()


@dataclass
class Statistics:
    """Counts of the modules that this process compiled, and of those that it found on disk."""

    compiled: int = 0
    loaded: int = 0
    seconds: float = 0.0


statistics = Statistics()


_own = threading.local()


def target_machine(machine: Machine | None = None) -> Any:
    """LLVM's target machine, by default for this machine. Each thread has its own, as threads may
    not share them."""
    machine = host.machine() if machine is None else machine
    found: dict[Machine, Any] = _own.__dict__.setdefault("targets", {})
    if machine not in found:
        found[machine] = (
            host.binding()
            .Target.from_triple(machine.triple)
            .create_target_machine(
                cpu=machine.cpu,
                features=machine.features,
                opt=2,
                reloc="pic",
                codemodel=_code_model(machine.triple),
                jit=True,
            )
        )
    return found[machine]


def _code_model(triple: str) -> str:
    """LLVM's default for JIT first loads each constant's address into a register. On ELF that isn't
    needed: a module's code and constants lie side by side, and calls go farther through stubs."""
    return "small" if triple.startswith("x86_64") and "linux" in triple else "jitdefault"


@functools.cache
def _linker() -> Any:
    return lasting.keep(
        host.binding().create_lljit_compiler(target_machine(), suppress_errors=True)
    )


@functools.cache
def _identity() -> str:
    """The versions and the machine that object code depends on besides its source."""
    import llvmlite

    llvm, machine = host.binding(), host.machine()
    return f"{_FORMAT} {llvmlite.__version__} {llvm.llvm_version_info} {machine!r}\n"


@functools.cache
def _libm() -> dict[str, int]:
    """Addresses of the C library's functions, including `fmodf` for float remainders."""
    from tilewright.codegen.llvm.math.library import LIBM

    found = {name: host.address_of(name) for name in (*LIBM, "fmodf")}
    return {name: address for name, address in found.items() if address is not None}


def assemble(code: str, machine: Machine | None = None) -> bytes:
    """The object code of a module, by default for this machine."""
    llvm = host.binding()
    module = llvm.parse_assembly(code, llvm.create_context())
    target = target_machine(machine)
    module.triple = (machine or host.machine()).triple
    module.data_layout = str(target.target_data)
    module.verify()
    optimize(module, target)
    return _emit_object(target, module)


def _emit_object(target: Any, module: Any) -> bytes:
    """As `target.emit_object(module)`, without llvmlite's lock. LLVM allows that, as no context or
    target machine is shared between threads here. This step takes most of a compilation."""
    from llvmlite.binding import ffi

    unlocked = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
    if unlocked is None:
        found: bytes = target.emit_object(module)
        return found
    with ffi.OutputString() as message:
        memory = unlocked(target, module, 1, message)
        if not memory:
            raise RuntimeError(str(message))
    start, size = ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory)
    try:
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


def optimize(module: Any, target: Any) -> None:
    """Run few passes: the emitter itself writes vectors and hoists invariants."""
    llvm = host.binding()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(target, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


@dataclass
class Linked:
    """Object code in memory and the addresses of its functions. The code lives as long as this
    object."""

    addresses: dict[str, int]
    tracker: Any = field(repr=False, default=None)


# Code is freed with the last launch that needs it, as a process has a limited number of mappings.
_linked: WeakValueDictionary[str, Linked] = WeakValueDictionary()
_names = itertools.count()


def link(code: str, *symbols: str, imports: dict[str, int] | None = None) -> Linked:
    """The module's machine code, ready to be called. Modules with equal text are compiled once."""
    return link_all([code], *symbols, imports=imports)[0]


def link_all(
    codes: Sequence[str], *symbols: str, imports: dict[str, int] | None = None
) -> list[Linked]:
    """As `link` for several modules. Those missing in the cache are compiled side by side."""
    with _LOCK:
        keys = [cache.digest(_identity() + code) for code in codes]
        found = {k: linked for k in keys if (linked := _linked.get(k)) is not None}
        wanted = {k: code for k, code in zip(keys, codes) if k not in found}
        if wanted:
            start = time.perf_counter()
            outside = {**_libm(), **(imports or {})}
            for key, image in _images(wanted).items():
                try:
                    made = _in_memory(key, image, symbols, outside)
                except RuntimeError:  # the entry isn't code with these symbols
                    cache.discard("llvm", key)
                    image = _assembled({key: wanted[key]})[key]
                    made = _in_memory(key, image, symbols, outside)
                found[key] = _linked[key] = made
            statistics.seconds += time.perf_counter() - start
        return [found[k] for k in keys]


def packed(name: str, imports: dict[str, int] | None = None) -> Linked | None:
    """The module called `name` of the pack, ready to be called; None if it isn't there. No compiler
    is loaded for it."""
    with _LOCK:
        found = pack.addresses(name, imports)
        return None if found is None else Linked(found)


def _images(wanted: dict[str, str]) -> dict[str, bytes]:
    stored = {key: cache.load_bytes("llvm", key) for key in wanted}
    found = {key: image for key, image in stored.items() if image is not None}
    statistics.loaded += len(found)
    return found | _assembled({k: code for k, code in wanted.items() if k not in found})


def _assembled(wanted: dict[str, str]) -> dict[str, bytes]:
    """Compile modules and store their object code."""
    statistics.compiled += len(wanted)
    if len(wanted) < 2:
        found = {key: assemble(code) for key, code in wanted.items()}
    else:
        from concurrent.futures import ThreadPoolExecutor

        # The longest first, so that the others don't wait for it at the end.
        keys = sorted(wanted, key=lambda k: -len(wanted[k]))
        with ThreadPoolExecutor(min(len(keys), os.cpu_count() or 1)) as threads:
            found = dict(zip(keys, threads.map(lambda k: assemble(wanted[k]), keys)))
    for key, image in found.items():
        cache.store_bytes("llvm", key, image)
    return found


def _in_memory(key: str, image: bytes, symbols: tuple[str, ...], imports: dict[str, int]) -> Linked:
    llvm = host.binding()
    builder = llvm.JITLibraryBuilder().add_object_img(image)
    for name, address in imports.items():
        builder = builder.import_symbol(name, address)
    for symbol in symbols:
        builder = builder.export_symbol(symbol)
    tracker = builder.add_current_process().link(_linker(), f"tw_{key}_{next(_names)}")
    return Linked({s: tracker[s] for s in symbols}, tracker)

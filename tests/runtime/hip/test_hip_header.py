"""What `runtime/hip` knows of libamdhip64, against AMD's header, which Triton's wheel has."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilewright.runtime import driver as common
from tilewright.runtime.cuda import context, memory, pinned
from tilewright.runtime.hip import driver

_spec = find_spec("triton")
FOLDERS = list(_spec.submodule_search_locations or ()) if _spec is not None else []
INCLUDES = [p for f in FOLDERS if (p := Path(f, "backends/amd/include")).is_dir()]

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(not INCLUDES, reason="Triton came without HIP's headers"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc reads the header"),
]

WIDTHS = {"size_t": 8, "unsigned long long": 8, "hipDeviceptr_t": 8, "unsigned char": 1}
HANDLE = re.compile(r"\bhip(Stream|Event|MemPool|Module|Function|Graph|GraphExec|GraphNode)_t\b")
MEANT = {
    "hipStreamNonBlocking": context._NON_BLOCKING,
    "hipEventBlockingSync": context._BLOCKING_SYNC,
    "hipEventDisableTiming": context._NO_TIMING,
    "hipMemPoolAttrReleaseThreshold": memory._RELEASE_THRESHOLD,
    "hipMemPoolAttrReservedMemCurrent": memory._RESERVED,
    "hipMemPoolAttrReservedMemHigh": memory._RESERVED_HIGH,
    "hipMemLocationTypeDevice": memory._A_GPU,
    "hipMemAccessFlagsProtReadWrite": memory._READ_AND_WRITE,
    "hipHostMallocPortable": pinned._PORTABLE,
    "hipErrorInvalidValue": common.INVALID_VALUE,
    "hipErrorOutOfMemory": common.OUT_OF_MEMORY,
    "hipErrorNotReady": common.NOT_READY,
    "hipErrorNotInitialized": 3,
    "hipErrorNoDevice": 100,
    "hipErrorInvalidDevice": 101,
    "hipErrorNoBinaryForGpu": 209,
    "hipErrorIllegalAddress": 700,
    "hipErrorLaunchOutOfResources": 701,
    "hipErrorLaunchFailure": 719,
    "hipErrorNotSupported": 801,
    "sizeof(hipDeviceProp_tR0600)": driver._PROPERTIES,
    "offsetof(hipDeviceProp_tR0600, gcnArchName)": driver._ARCHITECTURE,
    "sizeof(((hipDeviceProp_tR0600 *)0)->gcnArchName)": driver._NAME,
}
"""What the header calls the numbers that stand in our code."""

# PyTorch's names of properties, where they aren't the header's.
ATTRIBUTES = {
    "multi_processor_count": "multiprocessor_count",
    "L2_cache_size": "l2_cache_size",
    "pci_domain_id": "pci_domain_iD",
    "major": "compute_capability_major",
    "minor": "compute_capability_minor",
    "shared_memory_per_block": "max_shared_memory_per_block",
    "shared_memory_per_block_optin": "max_shared_memory_per_block",
    "shared_memory_per_multiprocessor": "max_shared_memory_per_multiprocessor",
    "regs_per_multiprocessor": "max_registers_per_multiprocessor",
    "max_threads_per_multi_processor": "max_threads_per_multi_processor",
}


def gcc(*options: str, text: str) -> str:
    source = f"#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n{text}"
    flags = ["-D__HIP_PLATFORM_AMD__", f"-I{INCLUDES[0]}", *options]
    done = subprocess.run(
        ["gcc", "-std=c11", "-xc", *flags, "-"], input=source, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return done.stdout


def is_pointer(declared: str) -> bool:
    return "*" in declared or HANDLE.search(declared) is not None


def width_of(declared: str) -> int:
    if is_pointer(declared):
        return 8
    return next((w for name, w in WIDTHS.items() if name in declared), 4)


def test_functions_have_these_parameters() -> None:
    text = gcc("-E", "-P", text="")
    for name, (_, types) in driver.Amd.prototypes.items():
        symbol = driver.SYMBOLS[name]
        found = re.search(rf"\b{symbol}\s*\(([^)]*)\)\s*;", text)
        assert found is not None, f"the header has no {symbol}"
        declared = [p for p in found[1].split(",") if p.strip() != "void"]
        assert len(declared) == len(types), f"{symbol}: {found[1]}"
        for ours, theirs in zip(types, declared):
            assert ctypes.sizeof(ours) == width_of(theirs), f"{symbol}: {theirs}"
            holds_address = ours in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(ours, "contents")
            # An address on the device is a number for us.
            assert holds_address == is_pointer(theirs) or ours is common.Pointer, (
                f"{symbol}: {theirs}"
            )


def layout(structure: Any, name: str, fields: str) -> list[str]:
    named = dict(field.split("=") for field in fields.split())
    return [f"sizeof({name}) == {ctypes.sizeof(structure)}"] + [
        f"offsetof({name}, {theirs}) == {getattr(structure, ours).offset}"
        for ours, theirs in named.items()
    ]


def test_structures_and_numbers() -> None:
    claims = layout(
        driver.KernelNode,
        "hipKernelNodeParams",
        "block=blockDim extra=extra function=func grid=gridDim parameters=kernelParams "
        "shared=sharedMemBytes",
    )
    claims += layout(
        common.MemoryAccess,
        "hipMemAccessDesc",
        "kind=location.type number=location.id flags=flags",
    )
    claims += [f"{name} == {number}" for name, number in MEANT.items()]
    for name, number in driver.ATTRIBUTES.items():
        words = ATTRIBUTES.get(name, name).split("_")
        theirs = "".join(word[:1].upper() + word[1:] for word in words)
        claims.append(f"hipDeviceAttribute{theirs} == {number}")
    gcc("-fsyntax-only", text="".join(f'_Static_assert({c}, "{c}");\n' for c in claims))

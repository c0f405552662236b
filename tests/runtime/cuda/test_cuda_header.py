"""What `runtime/cuda` knows of libcuda, against NVIDIA's header, which Triton's wheel has."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilewright.runtime import driver
from tilewright.runtime.cuda import context, graphs, matrices, memory, nvidia, pinned

_spec = find_spec("triton")
FOLDERS = list(_spec.submodule_search_locations or ()) if _spec is not None else []
HEADERS = [h for f in FOLDERS if (h := Path(f, "backends/nvidia/include/cuda.h")).is_file()]

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(not HEADERS, reason="Triton came without cuda.h"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc reads the header"),
]

WIDTHS = {"int": 4, "unsigned": 4, "CUdevice": 4, "cuuint32_t": 4, "size_t": 8, "CUdeviceptr": 8}
HANDLE = re.compile(
    r"\bCU(context|stream|event|memoryPool|module|function|graph|graphExec|graphNode)\b"
)
MEANT = {
    "CU_STREAM_NON_BLOCKING": context._NON_BLOCKING,
    "CU_EVENT_BLOCKING_SYNC": context._BLOCKING_SYNC,
    "CU_EVENT_DISABLE_TIMING": context._NO_TIMING,
    "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD": memory._RELEASE_THRESHOLD,
    "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT": memory._RESERVED,
    "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH": memory._RESERVED_HIGH,
    "CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC": graphs._PROGRAMMATIC,
    "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC": graphs._PROGRAMMATIC,
    "CU_MEM_LOCATION_TYPE_DEVICE": memory._A_GPU,
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": memory._READ_AND_WRITE,
    "CU_MEMHOSTALLOC_PORTABLE": pinned._PORTABLE,
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": nvidia._MAX_DYNAMIC_SHARED,
    "CU_FUNC_CACHE_PREFER_SHARED": nvidia._PREFER_SHARED,
    "CU_TENSOR_MAP_L2_PROMOTION_L2_128B": matrices._L2_128B,
    "CU_TENSOR_MAP_INTERLEAVE_NONE": matrices._NONE,
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": matrices._NONE,
    "CUDA_ERROR_INVALID_VALUE": driver.INVALID_VALUE,
    "CUDA_ERROR_OUT_OF_MEMORY": driver.OUT_OF_MEMORY,
    "CUDA_ERROR_NOT_READY": driver.NOT_READY,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
    "CUDA_ERROR_CONTAINED": 226,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": 715,
    "CUDA_ERROR_NOT_SUPPORTED": 801,
    "sizeof(CUtensorMap)": matrices.SIZE,
}
"""What else the header calls the numbers that stand in our code."""

# PyTorch's names of properties, where they aren't the header's.
ATTRIBUTES = {
    "memory_bus_width": "global_memory_bus_width",
    "max_threads_per_multi_processor": "max_threads_per_multiprocessor",
    "multi_processor_count": "multiprocessor_count",
    "major": "compute_capability_major",
    "minor": "compute_capability_minor",
    "shared_memory_per_block": "max_shared_memory_per_block",
    "shared_memory_per_multiprocessor": "max_shared_memory_per_multiprocessor",
    "shared_memory_per_block_optin": "max_shared_memory_per_block_optin",
    "regs_per_multiprocessor": "max_registers_per_multiprocessor",
    "is_multi_gpu_board": "multi_gpu_board",
}


def gcc(*options: str, text: str) -> str:
    source = f"#include <stddef.h>\n#include <cuda.h>\n{text}"
    command = ["gcc", "-std=c11", "-xc", f"-I{HEADERS[0].parent}", *options, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def is_pointer(declared: str) -> bool:
    return "*" in declared or HANDLE.search(declared) is not None


def width_of(declared: str) -> int:
    if is_pointer(declared):
        return 8
    if "long long" in declared:
        return 8
    if "char" in declared:
        return 1
    return next((w for name, w in WIDTHS.items() if re.search(rf"\b{name}\b", declared)), 4)


def test_functions_have_these_parameters() -> None:
    """By the names that the library exports them under, with those of older versions."""
    text = gcc("-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", text="")
    for name, (_, types) in driver.PROTOTYPES.items():
        found = re.search(rf"\b{name}\s*\(([^)]*)\)\s*;", text)
        assert found is not None, f"the header has no {name}"
        declared = [p for p in found[1].split(",") if p.strip() != "void"]
        assert len(declared) == len(types), f"{name}: {found[1]}"
        for ours, theirs in zip(types, declared):
            assert ctypes.sizeof(ours) == width_of(theirs), f"{name}: {theirs}"
            holds_address = ours in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(ours, "contents")
            # An address on the device is one for the compiler too, where it is `void *`.
            assert holds_address == is_pointer(theirs) or ours is driver.Pointer, (
                f"{name}: {theirs}"
            )


def layout(structure: Any, name: str, fields: list[str]) -> list[str]:
    size = f"sizeof({name}) == {ctypes.sizeof(structure)}"
    ours = [field for field, *_ in structure._fields_]
    assert len(ours) == len(fields)
    return [size] + [
        f"offsetof({name}, {theirs}) == {getattr(structure, own).offset}"
        for own, theirs in zip(ours, fields)
    ]


def test_structures_and_numbers() -> None:
    claims = layout(
        driver.LaunchConfig,
        "CUlaunchConfig",
        ["gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"],
    )
    claims += layout(
        driver.KernelNode,
        "CUDA_KERNEL_NODE_PARAMS_v2",
        "func gridDimX blockDimX sharedMemBytes kernelParams extra kern ctx".split(),
    )
    claims += layout(driver.Edge, "CUgraphEdgeData", "from_port to_port type reserved".split())
    claims += layout(
        driver.MemoryAccess, "CUmemAccessDesc", "location.type location.id flags".split()
    )
    claims += [f"{name} == {number}" for name, number in MEANT.items()]
    claims += [
        f"CU_DEVICE_ATTRIBUTE_{ATTRIBUTES.get(name, name).upper()} == {number}"
        for name, number in nvidia.ATTRIBUTES.items()
    ]
    gcc("-fsyntax-only", text="".join(f'_Static_assert({c}, "{c}");\n' for c in claims))

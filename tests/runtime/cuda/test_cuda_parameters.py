"""The launch of a kernel against the one that Triton itself makes of it, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import fake_libcuda
import pytest
from paths import SUPPORT

from tilewright.runtime.driver import PROTOTYPES

HERE = SUPPORT
# What Triton's own launcher looks up besides.
OF_TRITON = (
    "cuCtxSetLimit cuCtxGetLimit cuModuleUnload cuOccupancyMaxActiveClusters "
    "cuTensorMapEncodeIm2col cuPointerGetAttributes cuLaunchKernel"
).split()

pytestmark = [
    pytest.mark.triton,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake libcuda.so.1"),
]

CHILD = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import triton, triton.runtime
import triton_kernels as tk
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor
from tilewright.codegen.schedule import Schedule
from tilewright.ir import dtype as dt
from tilewright.runtime.cuda.device import Cuda
from tilewright.runtime.interpret.modules import load_source

class Driver(nvidia.CudaDriver):
    def __init__(self):  # without torch, with Triton 3.6 too
        self.utils, self.launcher_cls = nvidia.CudaUtils(), nvidia.CudaLauncher
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        self.get_current_stream = lambda device: 0
        self.get_device_capability = lambda device=0: (9, 0)

library = ctypes.CDLL("libcuda.so.1")
library.fake_last.restype = ctypes.c_void_p
WIDTH = {"i8": 1, "u8": 1, "i16": 2, "fp16": 2, "i32": 4, "u32": 4, "fp32": 4}

def recorded():
    return ctypes.string_at(library.fake_last(), library.fake_last_size())

def theirs(emitted, values):
    function = getattr(load_source(emitted.sha, emitted.body), emitted.name)
    names = list(emitted.signature)
    source = ASTSource(
        function,
        emitted.signature,
        {(names.index(n),): v for n, v in emitted.constexprs.items()},
        {(names.index(n),): [["tt.divisibility", 16]] for n in emitted.divisible},
    )
    options = {
        "num_warps": emitted.num_warps,
        "num_stages": emitted.num_stages,
        "enable_fp_fusion": emitted.contracts,
    }
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    compiled[(emitted.grid, 1, 1)](*values, *emitted.constexprs.values())

class Base:  # of a TensorDescriptor: what it asks of a tensor
    def __init__(self, pointer, dtype):
        self.data_ptr, self.dtype = (lambda: pointer), dtype

def parts(kind):
    # The widths of the parameters that one of Triton's is passed as.
    if kind.startswith("tensordesc"):
        rank = kind.count(",") + 1
        return [128, *[4] * rank, *[8] * rank]
    return [8 if kind[0] == "*" else WIDTH.get(kind, 8)]

def passed(emitted, values, buffers):
    # The arguments as Triton takes them.
    rest, out = list(values), []
    for each in emitted.arguments:
        mine, rest = rest[: len(parts(each.type))], rest[len(parts(each.type)) :]
        if each.role == "matrix":
            place, extents, strides = each.value
            tile = eval(each.type[each.type.index("[") : -1])
            base = Base(buffers[place].pointer, buffers[place].dtype)
            mine = [TensorDescriptor(base, list(extents), list(strides), tile)]
        out += mine
    return out

triton.runtime.driver.set_active(Driver())
device = Cuda(0)
persistent = Cuda(0, lambda kernel, target: Schedule(block_m=64, block_n=64, persistent=132))
cases = {name: (device, make()) for name, make in tk.REPRESENTATIVE.items()}
boxes = Cuda(0, lambda *_: Schedule(block_m=64, block_n=64, block_k=16, box=(1, 8, 8)))
cases["boxes"] = boxes, tk.conv(2, 16, 64, 14, dtype=dt.bfloat16, last=True)
cases["persistent"] = persistent, tk.matmul(200, 160, 96, dt.bfloat16)
for name, (device, kernel) in cases.items():
    launcher = device.compile(kernel)
    emitted = launcher.emitted
    buffers = [device.empty((b.size,), b.dtype) for b in (*kernel.outputs, *kernel.inputs)]
    scalars = [1 if not s.dtype.is_floating_point else 0.7 for s in kernel.scalars]
    types = [a.type for a in emitted.arguments]
    widths = [w for t in types for w in parts(t)] + [8, 8]
    library.fake_expect(len(widths), (ctypes.c_int * len(widths))(*widths))
    launcher(buffers, scalars)
    ours = recorded()
    library.fake_expect(len(widths), (ctypes.c_int * len(widths))(*widths))
    theirs(emitted, passed(emitted, launcher._values, buffers))
    assert any(ours), "nothing was recorded"
    assert ours == recorded(), f"{name}: {types}"
    print(name)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_libcuda.build(tmp_path_factory.mktemp("libcuda"), (*PROTOTYPES, *OF_TRITON))


def test_launches_are_those_of_triton(library: Path, run_python: Callable[..., str]) -> None:
    """Grid, threads, shared memory, attributes and every parameter, for a kernel of each form."""
    environment = {
        "LD_LIBRARY_PATH": str(library),
        "TRITON_LIBCUDA_PATH": str(library),
    }
    import triton_kernels

    done = run_python(CHILD, str(HERE), env=environment).split()
    assert done == [*triton_kernels.REPRESENTATIVE, "boxes", "persistent"]

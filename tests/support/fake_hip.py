"""HIP without an AMD GPU: the functions of libamdhip64 that `runtime/hip` names, done by the fake
CUDA driver. What HIP has otherwise is otherwise here, by the header of ROCm 7.1."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fake_cuda import INVALID_DEVICE, INVALID_IMAGE, INVALID_VALUE, Failure, FakeCuda
from fake_kernels import WIDTHS, image, loaded, passed

from tilewright.runtime import offline
from tilewright.runtime.hip.driver import Amd

SHARED = {"gfx942": 64 << 10, "gfx950": 160 << 10}
ARCHITECTURE = 1160  # the offset of gcnArchName in hipDeviceProp_tR0600
WAVE = 64  # threads of a warp


class FakeHip(FakeCuda):
    """The library with MI300X cards (gfx942)."""

    kind, chip = Amd, "gfx942"
    errors = {
        1: "hipErrorInvalidValue",
        2: "hipErrorOutOfMemory",
        3: "hipErrorNotInitialized",
        101: "hipErrorInvalidDevice",
        200: "hipErrorInvalidImage",
        201: "hipErrorInvalidContext",
        400: "hipErrorInvalidHandle",
        500: "hipErrorNotFound",
        700: "hipErrorIllegalAddress",
    }

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.version = 70125424

    def _cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> None:
        known = {23: 9, 61: 4, 63: self.multiprocessors, 74: SHARED[self.chip], 87: WAVE}
        out[0] = known.get(attribute, 1)

    def _hipGetDeviceProperties(self, out: int, device: int) -> None:
        name = f"{self.chip}:sramecc+:xnack-".encode() + b"\0"
        ctypes.memmove(out + ARCHITECTURE, name, len(name))

    def _cuCtxSetCurrent(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise Failure(INVALID_DEVICE)
        self._thread.context = device

    def _cuModuleLoadData(self, out: Any, image: int) -> None:
        request = loaded(image)
        if request is None or request.target != self.chip:
            raise Failure(INVALID_IMAGE)
        super()._cuModuleLoadData(out, image)

    def _cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> None:
        super()._cuModuleGetFunction(out, module, name)
        self._of(out[0], dict)["shared"] = SHARED[self.chip]

    def _cuLaunchKernel(self, function: int, *rest: Any) -> None:
        *sizes, shared, stream, parameters, extra = rest
        if sizes[3] % WAVE or extra:
            raise Failure(INVALID_VALUE)
        config = SimpleNamespace(grid=sizes[:3], block=sizes[3:], shared=shared)
        self._launch(self._asked(function, config, parameters), self._stream(stream))


class FakeHip950(FakeHip):
    """The library with MI355X cards."""

    chip = "gfx950"


def compiled(
    requests: Sequence[offline.Request], processes: int | None = None
) -> list[offline.Compiled]:
    """Compile by Triton. The images are the requests, which the fake runs, with the code behind.
    The parameters of the code must be those that a launch passes."""
    out = []
    for request in requests:
        made = offline.compile_request(request)
        widths = [8 if t.startswith("*") else WIDTHS[t] for _, t in passed(request)] + [8, 8]
        places, end = [], 0
        for width in widths:
            start = -(-end // width) * width
            places.append((start, width))
            end = start + width
        assert _parameters(made.asm["amdgcn"]) == places, request.name
        out.append(replace(made, binary=image(request) + made.binary))
    return out


def _parameters(text: str) -> list[tuple[int, int]]:
    """(offset, size) of a kernel's parameters, from the metadata behind its code."""
    found = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)", text)
    return [(int(offset), int(size)) for offset, size in found]

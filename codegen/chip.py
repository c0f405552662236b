"""GPUs as numbers: what a multiprocessor holds, and the peak rates of a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from tilewright.ir.dtype import FLOAT8, DType


@dataclass(frozen=True, eq=False, slots=True)
class Chip:
    """A GPU, from its maker's documents.

    name: the architecture (`sm_90`). model: the product whose numbers these are.
    multiprocessors: their number (compute units on AMD's).
    registers: 32-bit registers of a multiprocessor. granule: a warp gets them in multiples of this.
    registers_each: the most that a thread can have.
    shared: bytes of shared memory of a multiprocessor. shared_each: the most that a program can
        have. shared_own: bytes that the system takes for each program.
    columns: those of the memory of its own in which a multiprocessor's tensor cores keep sums, of
        128 numbers; 0 if they keep them in registers.
    limits: whether the compiler can be told the most registers of a thread.
    warp: threads of a warp. warps, programs: the most that are resident on a multiprocessor.
    bandwidth: bytes a second from memory. cache_bandwidth: bytes a second that all multiprocessors
        together get from the cache they share (64 bytes a cycle each, two thirds of which are
        reached).
    cache: bytes of that cache.
    flops: operations a second by the type of the factors: `tensor` on tensor cores (float32 as
        TF32), `vector` on the other units.
    product: the name of a tensor core's product in assembly.
    rows: the least rows that its operand has.
    exponentials: exponentials a second.
    stages: the least number of a loop's stages with which its loads are under way during its
        products. With fewer, Triton's compilers ask for a step's operands behind the products of
        the step before, and wait for them before the next.
    tensor_maps: whether hardware copies tiles of matrices to shared memory by descriptors.
    asynchronous: whether tensor cores fill registers of a thread while it goes on.
    specialized: whether the compiler can give copies and products warps of their own, and its
        kernels are right. (For sm_90 Triton 3.6 makes some that are wrong.)
    sustained: the share of `tensor` that the power limit leaves to long products of random numbers
        (790 of 989 tera operations on an H100 and an H200, measured); 1 where nobody has measured.
    """

    name: str
    model: str
    multiprocessors: int
    registers: int
    granule: int
    registers_each: int
    shared: int
    shared_each: int
    shared_own: int
    warp: int
    warps: int
    programs: int
    bandwidth: float
    cache_bandwidth: float
    cache: int
    tensor: Mapping[str, float]
    vector: Mapping[str, float]
    product: str
    rows: int
    exponentials: float
    stages: int = 2
    tensor_maps: bool = False
    asynchronous: bool = False
    specialized: bool = False
    columns: int = 0
    limits: bool = False
    sustained: float = 1.0

    @property
    def cached(self) -> int:
        """Bytes that stay in the cache until they are read again, beside other data."""
        return self.cache // 2

    def flops(self, dtype: DType, tf32: bool = False, digits: bool = False) -> float:
        """Operations a second in products of `dtype`. digits: whether those of float32 are made of
        six products of bfloat16 (`kernel/digits.py`)."""
        if digits:
            return self.tensor["bfloat16"] / 6
        name = dtype.name
        if dtype in FLOAT8 and name not in self.tensor:
            name = "float16"  # the type in which it is multiplied
        if name in self.tensor and (name != "float32" or tf32):
            return self.tensor[name]
        return self.vector.get(dtype.name, self.vector["float32"])

    def of_card(self, multiprocessors: int, bandwidth: float = 0.0, cache: int = 0) -> Chip:
        """This chip as it is on one card: an H100 PCIe has 114 multiprocessors, an H100 SXM slower
        memory than an H200. Rates that the multiprocessors have together follow from their number.
        Of `bandwidth` and `cache` 0 means that the number isn't known."""
        part = multiprocessors / self.multiprocessors
        return replace(
            self,
            multiprocessors=multiprocessors,
            bandwidth=bandwidth or self.bandwidth,
            cache=cache or self.cache,
            cache_bandwidth=self.cache_bandwidth * part,
            tensor=_scaled(self.tensor, part),
            vector=_scaled(self.vector, part),
            exponentials=self.exponentials * part,
        )


def _scaled(rates: Mapping[str, float], factor: float) -> Mapping[str, float]:
    return MappingProxyType({name: rate * factor for name, rate in rates.items()})


GATHER = 45
"""Instructions that load one element of a product's operand by itself: divisions for its place,
bounds, the load and the store to shared memory. Counted in sm_90's code of 3x3 convolutions: 46 to
55."""

WINDOW = 28
"""Those that load a vector of a window with channels last: 27 to 28 in sm_90's and sm_100's code of
3x3 convolutions."""


def _rates(**rates: float) -> Mapping[str, float]:
    """Tera operations a second, by dtype."""
    return _scaled(rates, 1e12)


_nvidia = partial(
    Chip,
    registers=1 << 16,
    granule=256,
    registers_each=255,
    limits=True,
    stages=3,
    shared_own=1024,
    warp=32,
    warps=64,
    programs=32,
)

SM_80 = _nvidia(
    "sm_80",
    "A100 SXM",
    multiprocessors=108,
    shared=164 << 10,
    shared_each=163 << 10,
    bandwidth=2.04e12,
    cache_bandwidth=5e12,
    cache=40 << 20,
    tensor=_rates(float16=312, bfloat16=312, float32=156, int8=624),
    vector=_rates(float32=19.5, float64=9.7),
    product="mma.sync",
    rows=16,
    exponentials=2.4e12,
)
SM_90 = _nvidia(
    "sm_90",
    "H200 SXM",
    multiprocessors=132,
    shared=228 << 10,
    shared_each=227 << 10,
    bandwidth=4.8e12,
    cache_bandwidth=10e12,
    cache=60 << 20,
    tensor=_rates(
        float16=989, bfloat16=989, float32=495, float8_e4m3fn=1979, float8_e5m2=1979, int8=1979
    ),
    vector=_rates(float32=67, float64=34),
    product="wgmma.mma_async",
    rows=64,
    exponentials=3.9e12,
    tensor_maps=True,
    asynchronous=True,
    sustained=0.8,
)
SM_100 = _nvidia(
    "sm_100",
    "B200",
    multiprocessors=148,
    shared=228 << 10,
    shared_each=227 << 10,
    bandwidth=8e12,
    cache_bandwidth=18e12,
    cache=126 << 20,
    tensor=_rates(
        float16=2250, bfloat16=2250, float32=1125, float8_e4m3fn=4500, float8_e5m2=4500, int8=4500
    ),
    vector=_rates(float32=75, float64=37),
    product="tcgen05.mma",
    rows=64,
    exponentials=4.4e12,
    tensor_maps=True,
    specialized=True,
    columns=512,
)
GFX942 = Chip(
    "gfx942",
    "MI300X",
    multiprocessors=304,
    registers=1 << 17,
    granule=512,
    registers_each=512,
    shared=64 << 10,
    shared_each=64 << 10,
    shared_own=0,
    warp=64,
    warps=32,
    programs=32,
    bandwidth=5.3e12,
    cache_bandwidth=17e12,
    cache=256 << 20,
    tensor=_rates(float16=1307, bfloat16=1307, float32=653, int8=2615),
    vector=_rates(float32=163, float64=81),
    product="mfma",
    rows=16,
    exponentials=10e12,
)
GFX950 = replace(
    GFX942,
    name="gfx950",
    model="MI355X",
    multiprocessors=256,
    shared=160 << 10,
    shared_each=160 << 10,
    bandwidth=8e12,
    tensor=_rates(float16=2516, bfloat16=2516, float32=157, int8=5033),
    vector=_rates(float32=157, float64=79),
)
CHIPS = {chip.name: chip for chip in (SM_80, SM_90, SM_100, GFX942, GFX950)}

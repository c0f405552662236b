"""Prelude, part one: arithmetic with PyTorch's edge cases, combiners of reductions, random bits.

Generated kernels carry a copy of each function that they call (see prelude.py). A function serves
every dtype it may meet; a test of a dtype is decided when the kernel is compiled.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def tw_div(a, b):
    if a.dtype == tl.float32:
        out = tl.div_rn(a, b)  # a plain / is two units off on NVIDIA
    else:
        out = a / b
    return out


@triton.jit
def tw_digit_0(x):
    near = x.to(tl.bfloat16).to(tl.float32)
    down = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(near) == float("inf"), down, near)


@triton.jit
def tw_digit_1(x):
    rest = x - tw_digit_0(x)
    return tl.where(rest == rest, rest.to(tl.bfloat16).to(tl.float32), 0.0)


@triton.jit
def tw_digit_2(x):
    rest = x - tw_digit_0(x)
    return tl.where(rest == rest, rest - rest.to(tl.bfloat16).to(tl.float32), 0.0)


@triton.jit
def tw_quick_div(a, b):
    """a / b, two units off, in two instructions instead of thirty. b: no larger than 2**126."""
    if a.dtype == tl.float32:
        out = libdevice.fast_dividef(a, b)
    else:
        out = a / b
    return out


@triton.jit
def tw_neg(x):
    if x.dtype.is_floating():
        out = x * -1.0  # Triton 3.6 takes -x for 0 - x, which has no -0.0
    else:
        out = -x
    return out


@triton.jit
def tw_sqrt(x):
    if x.dtype == tl.float32:
        out = tl.sqrt_rn(x)
    else:
        out = tl.sqrt(x)
    return out


@triton.jit
def tw_rsqrt(x):
    if x.dtype == tl.float32:
        # Two units off, in one instruction, which takes subnormal numbers for 0.
        tiny = x < 1.1754943508222875e-38
        root = libdevice.rsqrt(tl.where(tiny, x * 16777216.0, x))
        out = tl.where(tiny, root * 4096.0, root)
    else:
        out = 1.0 / tl.sqrt(x)
    return out


@triton.jit
def tw_reciprocal(x):
    return tw_div(tl.full((), 1.0, x.dtype), x)


@triton.jit
def tw_maximum(a, b):
    """The larger one; NaN if one is."""
    if a.dtype == tl.float64 or a.dtype == tl.int1:
        out = tl.where((a > b) | (a != a), a, b)
    else:
        out = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return out


@triton.jit
def tw_minimum(a, b):
    """The smaller one; NaN if one is."""
    if a.dtype == tl.float64 or a.dtype == tl.int1:
        out = tl.where((a < b) | (a != a), a, b)
    else:
        out = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return out


@triton.jit
def tw_halves(x):
    """A tile as two, the left and the right one."""
    return tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def tw_quarters(x):
    """A tile as four, from left to right."""
    left, right = tw_halves(x)
    a, b = tw_halves(left)
    c, d = tw_halves(right)
    return a, b, c, d


@triton.jit
def tw_eighths(x):
    """A tile as eight, from left to right."""
    left, right = tw_halves(x)
    a, b, c, d = tw_quarters(left)
    e, f, g, h = tw_quarters(right)
    return a, b, c, d, e, f, g, h


@triton.jit
def tw_multiply(a, b):
    return a * b


@triton.jit
def tw_argmax(a, i, b, j):
    """The larger of two values with its position; NaN is largest, the first position wins."""
    tie = (a == b) | ((a != a) & (b != b))
    first = (a > b) | ((a != a) & (b == b)) | (tie & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def tw_argmin(a, i, b, j):
    """The smaller of two values with its position; NaN is smallest, the first position wins."""
    tie = (a == b) | ((a != a) & (b != b))
    first = (a < b) | ((a != a) & (b == b)) | (tie & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def tw_position(position, size, exists, errors):
    """`position` brought into 0 … size - 1; one that was outside is recorded in `errors`."""
    outside = ((position < 0) | (position >= size)) & exists
    tl.store(errors + tl.zeros_like(position), position * 2 + 1, mask=outside)
    return tl.minimum(tl.maximum(position, 0), size - 1)


@triton.jit
def tw_from_float8_e4m3fn(bits):
    """float32 of the bits in memory: those of a float16 that is 256 times smaller."""
    wide = bits.to(tl.uint16)
    size = wide & 0x7F
    half = ((wide & 0x80) << 8) | tl.where(size == 0x7F, 0x7E00, size << 7).to(tl.uint16)
    return half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def tw_from_float8_e5m2(bits):
    """float32 of the bits in memory: the upper ones of a float16."""
    return (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def tw_to_float8_e4m3fn(x):
    """The bits of a float32, rounded to nearest even; the largest number for what is too large."""
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    is_nan = size > 0x7F800000
    size = tl.minimum(size, 0x43E00000)  # 448
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - 960
    # Beside 2**14 float32 has the spacing of the subnormal numbers.
    tiny = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
    out = tl.where(is_nan, 0x7F, tl.where(size < 0x3C800000, tiny, normal))
    return (out | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def tw_to_float8_e5m2(x):
    """The bits of a float32, rounded to nearest even; infinity for what is too large."""
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    is_nan = size > 0x7F800000
    size = tl.minimum(size, 0x47800000)  # 65536
    normal = ((size + 0xFFFFF + ((size >> 21) & 1)) >> 21) - 448
    # Beside 2**7 float32 has the spacing of the subnormal numbers.
    tiny = (size.to(tl.float32, bitcast=True) + 128.0).to(tl.uint32, bitcast=True) - 0x43000000
    out = tl.where(is_nan, 0x7F, tl.where(size < 0x38800000, tiny, normal))
    return (out | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def tw_philox_rounds(seed, offset, index):
    """Words 0 and 1 of Philox 4x32-10 at counter (index, offset) under key seed, all of them 64
    bits."""
    c0 = index.to(tl.uint32)
    c1 = (index.to(tl.int64) >> 32).to(tl.uint32)
    c2 = offset.to(tl.uint32)
    c3 = (offset >> 32).to(tl.uint32)
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    m0 = tl.full((), 0xD2511F53, tl.uint64)
    m1 = tl.full((), 0xCD9E8D57, tl.uint64)
    for _ in tl.static_range(10):
        # One instruction makes all 64 bits of such a product.
        product0 = c0.to(tl.uint64) * m0
        product1 = c2.to(tl.uint64) * m1
        c0 = (product1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = product1.to(tl.uint32)
        c2 = (product0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = product0.to(tl.uint32)
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1


@triton.jit
def tw_philox(seed, offset, index):
    """Word 0."""
    c0, _ = tw_philox_rounds(seed, offset, index)
    return c0


@triton.jit
def tw_philox_words(seed, offset, index):
    """Word 0, and below it word 1, as 64 bits."""
    c0, c1 = tw_philox_rounds(seed, offset, index)
    return (c0.to(tl.uint64) << 32) | c1.to(tl.uint64)


@triton.jit
def tw_relu(x):
    return tl.where(x < 0, 0, x)  # a NaN stays


@triton.jit
def tw_sign(x):
    one = tl.full((), 1, tl.int32).to(x.dtype)
    return tl.where(x > 0, one, tl.where(x < 0, -one, 0 * one))  # 0 for NaN, as in PyTorch


@triton.jit
def tw_shift_left(a, b):
    inside = (b >= 0) & (b < a.dtype.primitive_bitwidth)  # by others a shift is undefined
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@triton.jit
def tw_shift_right(a, b):
    inside = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    return tl.where(inside, a >> tl.where(inside, b, 0), 0 - (a < 0).to(a.dtype))


@triton.jit
def tw_invert(x):
    if x.dtype == tl.int1:
        out = x == 0
    else:
        out = ~x
    return out


@triton.jit
def tw_isinf(x):
    if x.dtype.is_floating():
        out = tl.abs(x) == float("inf")
    else:
        out = x != x
    return out


@triton.jit
def tw_isfinite(x):
    if x.dtype.is_floating():
        out = tl.abs(x) < float("inf")
    else:
        out = x == x
    return out


@triton.jit
def tw_copysign(a, b):
    """The magnitude of `a` with the sign of `b`, which a zero and a NaN have too."""
    if a.dtype == tl.float64:
        sign = b.to(tl.int64, bitcast=True) & -9223372036854775808
        bits = (a.to(tl.int64, bitcast=True) & 9223372036854775807) | sign
    else:
        sign = b.to(tl.int32, bitcast=True) & -2147483648
        bits = (a.to(tl.int32, bitcast=True) & 2147483647) | sign
    return bits.to(a.dtype, bitcast=True)


@triton.jit
def tw_floor(x):
    if x.dtype.is_floating():
        out = tl.floor(x)
    else:
        out = x
    return out


@triton.jit
def tw_ceil(x):
    if x.dtype.is_floating():
        out = tl.ceil(x)
    else:
        out = x
    return out


@triton.jit
def tw_trunc(x):
    if x.dtype.is_floating():
        out = tl.where(x < 0, tl.ceil(x), tl.floor(x))
    else:
        out = x
    return out


@triton.jit
def tw_rint(x):
    """The nearest integer, ties to even: adding 2**52 leaves no bits for a fraction."""
    if x.dtype == tl.float64:
        size = tl.abs(x)
        out = tl.where(
            size < 4503599627370496.0, (size + 4503599627370496.0) - 4503599627370496.0, size
        )
        out = tw_copysign(out, x)
    elif x.dtype == tl.float32:
        size = tl.abs(x)
        out = tl.where(size < 8388608.0, (size + 8388608.0) - 8388608.0, size)
        out = tw_copysign(out, x)
    else:
        out = x
    return out


@triton.jit
def tw_fmod(a, b):
    """a - b * trunc(a / b): the sign of `a`."""
    return a % b


@triton.jit
def tw_remainder(a, b):
    """a - b * floor(a / b): the sign of `b`, or of `a` where it is zero."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def tw_floor_divide(a, b):
    """floor(a / b), exact where the rounded quotient would reach the next integer."""
    if a.dtype.is_floating():
        rest = a % b
        whole = tw_div(a - rest, b)
        whole = tl.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
        near = tl.floor(whole)
        near = tl.where(whole - near > 0.5, near + 1, near)
        quotient = tw_div(a, b)
        near = tl.where(whole == 0, tw_copysign(whole, quotient), near)
        out = tl.where(b == 0, quotient, near)
    else:
        quotient = a // b
        rest = a - quotient * b
        step = ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
        out = quotient - step
    return out


@triton.jit
def tw_any(x):
    """Whether one element is true, as an integer: x is a tile or a single value."""
    out = x.to(tl.int32)
    if len(x.shape) > 0:
        out = tl.max(out)
    return out


@triton.jit
def tw_gcd(a, b):
    """Euclid's algorithm, in as many steps as the element that takes most of them."""
    if a.dtype.is_int_signed():
        a, b = tl.abs(a), tl.abs(b)
    a += 0 * b  # of the same shape, as the loop goes on with them
    b += 0 * a
    more = tw_any(b != 0)
    while more != 0:
        done = b == 0
        rest = a % tl.where(done, 1, b)
        a = tl.where(done, a, b)
        b = tl.where(done, 0, rest).to(b.dtype)
        more = tw_any(b != 0)
    return a


@triton.jit
def tw_split(row, run, count):
    """How many of the first `count` elements of two merged runs are of the first run."""
    low = tl.maximum(count - run, 0)
    high = tl.minimum(count, run)
    while low < high:
        middle = (low + high) // 2
        is_first = tl.load(row + middle) <= tl.load(row + run + count - 1 - middle)
        low = tl.where(is_first, middle + 1, low)
        high = tl.where(is_first, high, middle)
    return low


@triton.jit
def tw_merged(row, run, start, most, BLOCK: tl.constexpr):
    """The elements start, start + 1, … of two merged runs; `most` beyond them."""
    stop = tl.minimum(start + BLOCK, 2 * run)
    left = tw_split(row, run, start)
    right = start - left
    lefts = tw_split(row, run, stop) - left
    rights = stop - start - lefts
    place = tl.arange(0, BLOCK)
    back = BLOCK - 1 - place
    at = tl.where(place < lefts, left + place, run + right + back)
    words = tl.load(row + at, mask=(place < lefts) | (back < rights), other=most)
    return tl.bitonic_merge(words)

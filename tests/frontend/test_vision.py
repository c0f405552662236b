"""torchvision's operators as ours, against loops in float64; images of bytes against PyTorch."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

import tilewright as tw


@pytest.fixture(scope="module")
def vision():
    tw.ops.load_library("/any/where/torchvision/_C.so")
    return tw.ops.torchvision


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape)


def bilinear(image: np.ndarray, y: float, x: float, inside: bool) -> float:
    """A sample of an image [h, w]: `inside` moves places near the border onto it; else there are
    zeros outside."""
    h, w = image.shape
    if inside:
        if y < -1 or y > h or x < -1 or x > w:
            return 0.0
        y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < h and 0 <= column < w:
                total += image[row, column] * max(0, 1 - abs(y - row)) * max(0, 1 - abs(x - column))
    return total


ROIS = np.array(
    [[0, 0.3, 0.7, 6.2, 5.1], [1, 2, 2, 2.5, 9.4], [0, -3, -2, 4, 4], [1, 0, 0, 12, 12]]
)


@pytest.mark.parametrize(("aligned", "ratio"), [(False, 2), (True, -1)])
def test_roi_align(vision, aligned: bool, ratio: int) -> None:
    maps, scale, (rows, columns) = random(2, 3, 8, 9), 0.5, (3, 2)
    wanted = np.zeros((4, 3, rows, columns))
    for k, (number, *box) in enumerate(ROIS):
        x1, y1, x2, y2 = (v * scale - 0.5 * aligned for v in box)
        high, wide = y2 - y1, x2 - x1
        if not aligned:
            high, wide = max(high, 1), max(wide, 1)
        ny = ratio if ratio > 0 else math.ceil(high / rows)
        nx = ratio if ratio > 0 else math.ceil(wide / columns)
        for c, p, q, i, j in np.ndindex(3, rows, columns, ny, nx):
            y = y1 + (p + (i + 0.5) / ny) * high / rows
            x = x1 + (q + (j + 0.5) / nx) * wide / columns
            wanted[k, c, p, q] += bilinear(maps[int(number), c], y, x, True) / (ny * nx)
    x = tw.tensor(maps, dtype=tw.float32, requires_grad=True)
    made = vision.roi_align(
        x, tw.tensor(ROIS, dtype=tw.float32), scale, rows, columns, ratio, aligned
    )
    assert np.abs(made.detach().numpy() - wanted).max() < 1e-5
    made.sum().backward()  # each region's weights sum to one for each sample inside
    assert x.grad.isfinite().all() and x.grad.sum() > 0


def test_roi_pool(vision) -> None:
    maps = random(2, 3, 8, 9)
    x = tw.tensor(maps, requires_grad=True)
    boxes = np.array([[0.0, 0, 0, 5, 6], [1, 3, 2, 8, 7], [1, 20, 20, 30, 30]])
    made, places = vision.roi_pool(x, tw.tensor(boxes), 1.0, 2, 3)
    for k, c, p, q in np.ndindex(3, 3, 2, 3):
        n, x1, y1, x2, y2 = boxes[k].astype(int)
        high, wide = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 3
        bin = maps[
            n, c, y1 + math.floor(p * high) : y1 + math.ceil((p + 1) * high),
            x1 + math.floor(q * wide) : x1 + math.ceil((q + 1) * wide),
        ]  # fmt: skip
        assert made[k, c, p, q].item() == (bin.max() if bin.size else 0)
        assert (places[k, c, p, q].item() == -1) == (bin.size == 0)
    made.sum().backward()
    assert x.grad.sum().item() == 2 * 3 * 6  # one for each bin that isn't empty


def test_position_sensitive_regions_take_their_own_channels(vision) -> None:
    maps = np.broadcast_to(np.arange(12.0).reshape(1, 12, 1, 1), (1, 12, 8, 8)).copy()
    rois = tw.tensor([[0.0, 2, 2, 12, 12]])
    for made, channel in (
        vision.ps_roi_align(tw.tensor(maps), rois, 0.5, 2, 3, 2),
        vision.ps_roi_pool(tw.tensor(maps), rois, 0.5, 2, 3),
    ):
        assert np.allclose(made.numpy(), np.arange(12.0).reshape(1, 2, 2, 3))
        assert channel.numpy().tolist() == np.arange(12).reshape(1, 2, 2, 3).tolist()


def test_deform_conv2d(vision) -> None:
    x, weight = random(1, 4, 5, 6), random(2, 2, 3, 3, seed=1)
    offset, mask = random(1, 36, 3, 3, seed=2), random(1, 18, 3, 3, seed=3)
    wanted = np.zeros((1, 2, 3, 3))
    for o, c, i, j, p, q in np.ndindex(2, 2, 3, 3, 3, 3):
        channel = 2 * o + c  # two groups, and two parts with offsets of their own
        tap = (channel // 2) * 9 + 3 * i + j
        y = 2 * p - 1 + i + offset[0, 2 * tap, p, q]
        z = 2 * q - 1 + j + offset[0, 2 * tap + 1, p, q]
        sample = bilinear(x[0, channel], y, z, False) * mask[0, tap, p, q]
        wanted[0, o, p, q] += weight[o, c, i, j] * sample
    given = [tw.tensor(v, requires_grad=True) for v in (x, weight, offset, mask)]
    bias = tw.zeros(2, dtype=tw.float64)
    numbers = (2, 2, 1, 1, 1, 1, 2, 2, True)
    made = vision.deform_conv2d(*given, bias, *numbers)
    assert np.abs(made.detach().numpy() - wanted).max() < 1e-12
    (made * made).sum().backward()
    for k, value in enumerate((x, weight, offset, mask)):
        step = random(*value.shape, seed=9) * 1e-6
        ends = []
        for sign in (1, -1):
            moved = [t.detach() for t in given]
            moved[k] = tw.tensor(value + sign * step)
            ends.append((vision.deform_conv2d(*moved, bias, *numbers) ** 2).sum().item())
        slope = (given[k].grad.numpy() * step).sum()
        assert abs((ends[0] - ends[1]) / 2 - slope) < 1e-6 * abs(slope) + 1e-12


def test_nms(vision) -> None:
    random_state = np.random.RandomState(0)
    corner = random_state.rand(40, 2) * 10
    boxes = np.concatenate([corner, corner + random_state.rand(40, 2) * 6], 1).astype(np.float32)
    scores = random_state.rand(40).astype(np.float32)
    kept: list[int] = []
    for i in np.argsort(-scores):
        for j in kept:
            low, high = (
                np.maximum(boxes[i, :2], boxes[j, :2]),
                np.minimum(boxes[i, 2:], boxes[j, 2:]),
            )
            shared = np.prod(np.maximum(high - low, 0))
            areas = [np.prod(boxes[k, 2:] - boxes[k, :2]) for k in (i, j)]
            if shared / (sum(areas) - shared) > 0.3:
                break
        else:
            kept.append(int(i))
    assert vision.nms(tw.tensor(boxes), tw.tensor(scores), 0.3).tolist() == kept
    assert vision.nms(tw.zeros(0, 4), tw.zeros(0), 0.3).tolist() == []
    with pytest.raises(RuntimeError, match="same number"):
        vision.nms(tw.zeros(3, 4), tw.zeros(2), 0.3)


def test_pictures() -> None:
    Image = pytest.importorskip("PIL.Image")
    tw.ops.load_library("torchvision/image.pyd")
    pixels = np.random.RandomState(0).randint(0, 256, (5, 7, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = tw.tensor(np.frombuffer(file.getvalue(), np.uint8).copy())
    assert (tw.ops.image.decode_png(data).numpy() == pixels.transpose(2, 0, 1)).all()
    again = tw.ops.image.encode_png(tw.tensor(pixels.transpose(2, 0, 1).copy()), 6)
    assert (tw.ops.image.decode_image(again, 3).numpy() == pixels.transpose(2, 0, 1)).all()
    assert tw.ops.image.decode_image(data, 1).shape == (1, 5, 7)
    with pytest.raises(RuntimeError, match="no picture"):
        tw.ops.image.decode_image(tw.zeros(9, dtype=tw.uint8))


def test_other_libraries_are_refused() -> None:
    with pytest.raises(OSError, match="PyTorch's own binaries"):
        tw.ops.load_library("mine/_C.so")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_are_resized_with_pytorchs_bits(torch, mode: str, antialias: bool) -> None:
    image = np.random.RandomState(0).randint(0, 256, (2, 3, 17, 30)).astype(np.uint8)
    for size, aligned in (((31, 9), False), ((5, 30), True)):
        options = {"size": size, "mode": mode, "antialias": antialias, "align_corners": aligned}
        wanted = torch.nn.functional.interpolate(torch.from_numpy(image), **options)
        made = tw.nn.functional.interpolate(tw.from_numpy(image), **options)
        assert made.dtype is tw.uint8 and (made.numpy() == wanted.numpy()).all(), (size, aligned)

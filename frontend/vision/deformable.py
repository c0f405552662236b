"""Deformable convolution (Deformable ConvNets, 2017, and v2, 2018)."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line

from ..functions.masks import where
from ..functions.ranges import arange


def deform_conv2d(
    input: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """A convolution whose taps are moved: by `offset`, and weighted by `mask` if `use_mask`.

    input: [n, c, h, w]. weight: [out, c / groups, kh, kw]. offset: [n, 2 · offset_groups · kh · kw,
    oh, ow], rows before columns. mask: the same with half as many channels. Returns [n, out, oh,
    ow]. A tap between elements is their bilinear mean; outside of the image there are zeros.
    """
    n, c, h, w = input.shape
    out, _, kh, kw = weight.shape
    oh = (h + 2 * pad_h - (dilation_h * (kh - 1) + 1)) // stride_h + 1
    ow = (w + 2 * pad_w - (dilation_w * (kw - 1) + 1)) // stride_w + 1
    taps = kh * kw
    expected = (n, 2 * offset_groups * taps, oh, ow)
    if tuple(offset.shape) != expected:
        raise RuntimeError(
            f"deform_conv2d: offset has the shape {tuple(offset.shape)}, expected {expected}"
            f"{at_user_line()}"
        )
    moved = offset.view(n, offset_groups, kh, kw, 2, oh, ow)

    def line(count: int, step: int, start: int = 0) -> Any:
        return arange(count, device=input.device).to(input.dtype) * step + start

    y = line(kh, dilation_h).view(kh, 1, 1, 1) + line(oh, stride_h, -pad_h).view(oh, 1)
    x = line(kw, dilation_w).view(kw, 1, 1) + line(ow, stride_w, -pad_w)
    y, x = moved[:, :, :, :, 0] + y, moved[:, :, :, :, 1] + x
    columns = _sampled(input, y.flatten(2), x.flatten(2), offset_groups)
    if use_mask:
        columns = columns * mask.view(n, offset_groups, 1, taps * oh * ow)
    columns = columns.reshape(n, groups, (c // groups) * taps, oh * ow)
    rows = weight.view(groups, out // groups, (c // groups) * taps)
    return (rows @ columns).view(n, out, oh, ow) + bias.view(1, out, 1, 1)


def _sampled(input: Any, y: Any, x: Any, parts: int) -> Any:
    """Bilinear means at y, x [n, parts, places], for each part of the channels:
    [n, parts, c / parts, places]."""
    n, c, h, w = input.shape
    flat = input.view(n, parts, c // parts, h * w)
    top, left = y.detach().floor(), x.detach().floor()
    part_y, part_x = y - top, x - left
    total: Any = 0
    for row, weight_y in ((top, 1 - part_y), (top + 1, part_y)):
        for column, weight_x in ((left, 1 - part_x), (left + 1, part_x)):
            inside = (row >= 0) & (row <= h - 1) & (column >= 0) & (column <= w - 1)
            place = where(inside, row * w + column, 0).long().unsqueeze(2)
            taken = flat.gather(3, place.expand(n, parts, c // parts, place.shape[-1]))
            total = total + taken * where(inside, weight_y * weight_x, 0).unsqueeze(2)
    return total

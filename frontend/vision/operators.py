"""The operators of the namespace torchvision. Their derivatives follow from the calls they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..library import Library
from .boxes import nms
from .deformable import deform_conv2d
from .regions import ps_roi_align, ps_roi_pool, roi_align, roi_pool

_REGIONS = "Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_OPERATORS: dict[str, Callable[..., Any]] = {
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": nms,
    f"roi_align({_REGIONS}, int sampling_ratio, bool aligned) -> Tensor": roi_align,
    f"roi_pool({_REGIONS}) -> (Tensor, Tensor)": roi_pool,
    f"ps_roi_align({_REGIONS}, int sampling_ratio) -> (Tensor, Tensor)": ps_roi_align,
    f"ps_roi_pool({_REGIONS}) -> (Tensor, Tensor)": ps_roi_pool,
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, "
    "int offset_groups, bool use_mask) -> Tensor": deform_conv2d,
    "_cuda_version() -> int": lambda: -1,
}
# torchvision names these when it is imported, to give them derivatives or shapes.
_NAMED = (
    "_roi_align_backward _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward "
    "_deform_conv2d_backward qnms qroi_align"
)

_library = Library("torchvision", "DEF")
for _schema, _function in _OPERATORS.items():
    _library.impl(_library.define(_schema), _function, "CompositeImplicitAutograd")
for _name in _NAMED.split():
    _library.define(f"{_name}() -> Tensor")

"""Pictures in files' bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from .table import operator


@operator("ImageDecoder", host=("data",), known="function")
def image_decoder(data: Any, *, pixel_format: str = "RGB") -> Any:
    """The picture [height, width, channels], by Pillow."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise RuntimeError("pictures are decoded by Pillow: pip install pillow") from None
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"expected pixel_format RGB, BGR or Grayscale, got {pixel_format!r}")
    try:
        picture = Image.open(io.BytesIO(data.tobytes()))
        picture.load()
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"these bytes are no picture: {error}") from None
    if pixel_format == "Grayscale":
        return np.asarray(picture.convert("L"))[..., None]
    pixels = np.asarray(picture.convert("RGB"))
    return pixels if pixel_format == "RGB" else np.ascontiguousarray(pixels[..., ::-1])

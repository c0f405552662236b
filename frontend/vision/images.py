"""The operators of the namespace image: files of pictures, read and written by Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..functions.from_data import from_numpy
from ..library import Library

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
"""What torchvision's ImageReadMode asks for; 0 leaves the picture as it is."""
_WIDE = ("I;16", "I;16B", "I;16L", "I")
"""Pillow's modes of gray pictures with 16 bits."""


def _opened(data: Any) -> Any:
    from PIL import Image, UnidentifiedImageError

    if data.dim() != 1 or data.numel() == 0 or str(data.dtype) != "torch.uint8":
        raise RuntimeError(
            f"expected the bytes of a picture as a uint8 vector, got {data.dtype} "
            f"{tuple(data.shape)}{at_user_line()}"
        )
    try:
        picture = Image.open(io.BytesIO(data.cpu().numpy().tobytes()))
        picture.load()
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise RuntimeError(f"these bytes are no picture: {error}{at_user_line()}") from None
    return picture


def _tensor(picture: Any) -> Any:
    """[channels, height, width] of a picture."""
    array = np.array(picture)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return from_numpy(np.ascontiguousarray(array))


def _gray(picture: Any, mode: int) -> Any:
    """A picture's luminance, with its transparency in mode 2, in libpng's fixed point: Pillow
    rounds where libpng cuts off."""
    red, green, blue, alpha = np.array(picture.convert("RGBA")).astype(np.int64).transpose(2, 0, 1)
    gray = (9794 * red + 19235 * green + 3739 * blue) >> 15
    return from_numpy(np.stack([gray, alpha][:mode]).astype(np.uint8))


def decode(data: Any, mode: int = 0, apply_exif_orientation: bool = False) -> Any:
    """The picture in a file's bytes, as uint8 [channels, height, width]; 16 bits stay uint16."""
    picture = _opened(data)
    if apply_exif_orientation:
        from PIL import ImageOps

        picture = ImageOps.exif_transpose(picture)
    if picture.mode in _WIDE and mode in (0, 1):
        return from_numpy(np.array(picture).astype(np.uint16)[None])
    if mode in (1, 2) and picture.format == "PNG" and picture.mode in ("RGB", "RGBA", "P"):
        return _gray(picture, mode)
    if mode:
        picture = picture.convert(_MODES[mode])
    elif picture.mode == "P":
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    elif picture.mode == "1":
        picture = picture.convert("L")
    return _tensor(picture)


def decode_gif(data: Any) -> Any:
    """The frames of a GIF [frames, 3, height, width], or its one frame without the first axis."""
    from PIL import ImageSequence

    frames = [np.array(f.convert("RGB")) for f in ImageSequence.Iterator(_opened(data))]
    array = np.ascontiguousarray(np.stack(frames).transpose(0, 3, 1, 2))
    return from_numpy(array[0] if len(frames) == 1 else array)


def _encoded(image: Any, **options: Any) -> Any:
    from PIL import Image

    if str(image.dtype) != "torch.uint8" or image.dim() != 3 or image.shape[0] not in (1, 3):
        raise RuntimeError(
            f"expected a uint8 picture [1 or 3, height, width], got {image.dtype} "
            f"{tuple(image.shape)}{at_user_line()}"
        )
    array = image.cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0).copy()).save(
        file, **options
    )
    return from_numpy(np.frombuffer(file.getvalue(), np.uint8).copy())


def encode_png(image: Any, compression_level: int) -> Any:
    """The bytes of a PNG file; compression_level: 0 to 9."""
    return _encoded(image, format="PNG", compress_level=compression_level)


def encode_jpeg(image: Any, quality: int) -> Any:
    """The bytes of a JPEG file; quality: 1 to 100."""
    return _encoded(image, format="JPEG", quality=quality)


def read_file(filename: str) -> Any:
    """The bytes of a file."""
    try:
        data = Path(filename).read_bytes()
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{filename}'") from None
    return from_numpy(np.frombuffer(data, np.uint8).copy())


def write_file(filename: str, data: Any) -> None:
    """Write bytes to a file."""
    Path(filename).write_bytes(data.cpu().numpy().tobytes())


_READ = "Tensor data, int mode=0, bool apply_exif_orientation=False"
_OPERATORS: dict[str, Callable[..., Any]] = {
    "read_file(str filename) -> Tensor": read_file,
    "write_file(str filename, Tensor data) -> ()": write_file,
    "decode_gif(Tensor data) -> Tensor": decode_gif,
    "encode_png(Tensor data, int compression_level) -> Tensor": encode_png,
    "encode_jpeg(Tensor data, int quality) -> Tensor": encode_jpeg,
    **{f"{n}({_READ}) -> Tensor": decode for n in "decode_png decode_jpeg decode_image".split()},
    "decode_webp(Tensor data, int mode) -> Tensor": decode,
}

_library = Library("image", "DEF")
for _schema, _function in _OPERATORS.items():
    _library.impl(_library.define(_schema), _function)

"""The file of a model, and the files beside it that hold its large weights.

A file may come from anywhere. Nothing outside the model's folder is read, and no memory is taken
for numbers that aren't there.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OnnxLoaderError
from ..package import require_onnx


class Source:
    """A model from a path, a binary stream, a ModelProto or an ONNXProgram.

    proto: the ModelProto. folder: where external data lies; None where it isn't known.
    """

    def __init__(self, source: Any):
        onnx = require_onnx("loading an ONNX model")
        proto = getattr(source, "model_proto", source)
        self.folder: Path | None = None
        if not isinstance(proto, onnx.ModelProto):
            try:
                proto = onnx.load(proto, load_external_data=False)
            except OSError:
                raise
            except Exception as error:  # protobuf's DecodeError, or onnx's errors for bad data
                raise OnnxLoaderError(f"load: {source} is no ONNX model: {error}") from error
            if isinstance(source, (str, os.PathLike)):
                self.folder = Path(source).resolve().parent
        if not proto.HasField("graph"):
            raise OnnxLoaderError(f"load: {source} is no ONNX model: it has no graph")
        self.proto = proto

    def array(self, tensor: Any) -> np.ndarray:
        """The numbers of a TensorProto, as a map of its file if they lie outside."""
        import onnx

        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        _check_sizes(tensor)
        try:
            return self._external(tensor) if external else onnx.numpy_helper.to_array(tensor)
        except (OnnxLoaderError, OSError):
            raise
        except Exception as error:
            raise OnnxLoaderError(f"load: the weight {tensor.name!r}: {error}") from error

    def _external(self, tensor: Any) -> np.ndarray:
        import onnx

        entries = {e.key: e.value for e in tensor.external_data}
        where = f"load: the weight {tensor.name!r} lies in the file {entries.get('location')!r}"
        if self.folder is None:
            raise OnnxLoaderError(f"{where}, and the model has no folder: load it from its path")
        path = _inside(self.folder, entries.get("location", ""), where)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        bits = _bits(tensor.data_type)
        count = math.prod(tensor.dims)
        size = -(-count * bits // 8)
        begin, length = (_number(entries.get(k), where) for k in ("offset", "length"))
        begin = begin or 0
        whole = path.stat().st_size
        if length is not None and length != size:
            raise OnnxLoaderError(f"{where}: expected {size} bytes, but its length is {length}")
        if begin + size > whole:
            raise OnnxLoaderError(
                f"{where}: expected {size} bytes from byte {begin} on, but it has {whole} bytes"
            )
        if not size:
            return np.empty(tuple(tensor.dims), dtype)
        mapped = np.memmap(path, np.uint8, "r", begin, (size,))
        if bits == dtype.itemsize * 8:
            return mapped.view(dtype.newbyteorder("<")).reshape(tuple(tensor.dims))
        packed = onnx.TensorProto()
        packed.CopyFrom(tensor)
        packed.ClearField("external_data")
        packed.data_location = onnx.TensorProto.DEFAULT
        packed.raw_data = mapped.tobytes()
        return onnx.numpy_helper.to_array(packed)


def _number(text: str | None, where: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise OnnxLoaderError(f"{where}: expected a number of bytes, got {text!r}")
    return int(text)


def _inside(folder: Path, location: str, where: str) -> Path:
    """The path of a file in the model's folder."""
    path = (folder / location).resolve()  # follows links, too
    if not location or Path(location).is_absolute() or folder not in path.parents:
        raise OnnxLoaderError(f"{where}, which is not in the model's folder: it isn't read")
    if not path.is_file():
        raise FileNotFoundError(f"{where}: there is no file {path}")
    return path


def _bits(code: int) -> int:
    """The bits of an element in a file. Elements of less than a byte are packed."""
    import onnx

    name = onnx.TensorProto.DataType.Name(code)
    for bits, names in {2: ("INT2", "UINT2"), 4: ("INT4", "UINT4", "FLOAT4E2M1")}.items():
        if name in names:
            return bits
    return int(onnx.helper.tensor_dtype_to_np_dtype(code).itemsize) * 8


def _check_sizes(tensor: Any) -> None:
    """Refuse a tensor whose sizes are impossible, before memory is taken for it."""
    import onnx

    shown = f"load: the weight {tensor.name!r} of the sizes {list(tensor.dims)}"
    if any(n < 0 for n in tensor.dims):
        raise OnnxLoaderError(f"{shown} has a negative size")
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not tensor.HasField("raw_data"):
        return
    expected = -(-math.prod(tensor.dims) * _bits(tensor.data_type) // 8)
    if len(tensor.raw_data) != expected:
        raise OnnxLoaderError(f"{shown} has {len(tensor.raw_data)} bytes; expected {expected}")

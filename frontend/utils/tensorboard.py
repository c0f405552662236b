"""torch.utils.tensorboard: event files, written by the package tensorboard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-not-found]
    from tensorboard.compat.proto.summary_pb2 import (  # type: ignore[import-not-found]
        HistogramProto,
        Summary,
        SummaryMetadata,
    )
    from tensorboard.compat.proto.tensor_pb2 import (  # type: ignore[import-not-found]
        TensorProto,
    )
    from tensorboard.compat.proto.tensor_shape_pb2 import (  # type: ignore[import-not-found]
        TensorShapeProto,
    )
    from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-not-found]
        EventFileWriter,
    )
except ImportError as error:
    raise ModuleNotFoundError(
        "torch.utils.tensorboard needs the package tensorboard: pip install tensorboard"
    ) from error

from ..recording import Handle

__all__ = ["SummaryWriter"]


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu().numpy() if isinstance(value, Handle) else value)


class SummaryWriter:
    """Writes scalars, histograms, images and text into an event file that TensorBoard shows."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ):
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._writers: dict[str, Any] = {}
        self._main = self._writer(self.log_dir)
        if purge_step is not None:
            self._main.add_event(
                Event(wall_time=time.time(), step=purge_step, file_version="brain.Event:2")
            )

    def _writer(self, folder: str) -> Any:
        if folder not in self._writers:
            queue, seconds, suffix = self._options
            self._writers[folder] = EventFileWriter(folder, queue, seconds, suffix)
        return self._writers[folder]

    def get_logdir(self) -> str:
        return self.log_dir

    def _add(self, value: Any, step: Any, walltime: float | None, writer: Any = None) -> None:
        event = Event(summary=Summary(value=[value]), wall_time=walltime or time.time())
        if step is not None:
            event.step = int(step)
        (writer or self._main).add_event(event)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        number = float(_array(scalar_value).reshape(()))
        self._add(Summary.Value(tag=tag, simple_value=number), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several scalars of one picture, each in a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            number = float(_array(value).reshape(()))
            shown = Summary.Value(tag=main_tag, simple_value=number)
            self._add(shown, global_step, walltime, self._writer(folder))

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        flat = _array(values).astype(np.float64).reshape(-1)
        if not flat.size:
            raise ValueError("The input has no element.")
        if isinstance(bins, str) and bins == "tensorflow":
            side = 1e-12 * 1.1 ** np.arange(775)
            bins = np.concatenate([-side[::-1], [0], side])
        counts, limits = np.histogram(flat, bins=bins)
        held = np.flatnonzero(counts)
        if held.size:  # the buckets round those that hold values
            first, last = max(held[0] - 1, 0), held[-1] + 1
            counts, limits = counts[first:last], limits[first + 1 : last + 1]
        else:
            limits = limits[1:]
        shown = HistogramProto(
            min=flat.min(),
            max=flat.max(),
            num=flat.size,
            sum=flat.sum(),
            sum_squares=float(flat @ flat),
            bucket_limit=limits.tolist(),
            bucket=counts.tolist(),
        )
        self._add(Summary.Value(tag=tag, histo=shown), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image of uint8, or of floats from 0 to 1. dataformats: the order of its axes."""
        import io

        from PIL import Image

        array = _array(img_tensor)
        order = dataformats.upper()
        if array.ndim != len(order):
            raise ValueError(
                f"size of input tensor and input format are different. tensor shape: {array.shape},"
                f" input_format: {dataformats}"
            )
        array = array.transpose([order.index(axis) for axis in "HWC" if axis in order])
        if array.dtype != np.uint8:
            array = (np.clip(array, 0, 1) * 255).astype(np.uint8)
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[..., 0]
        data = io.BytesIO()
        Image.fromarray(array).save(data, "PNG")
        shown = Summary.Image(
            height=array.shape[0],
            width=array.shape[1],
            colorspace=array.shape[2] if array.ndim == 3 else 1,
            encoded_image_string=data.getvalue(),
        )
        self._add(Summary.Value(tag=tag, image=shown), global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        text = TensorProto(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=shape)
        value = Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=text)
        self._add(value, global_step, walltime)

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

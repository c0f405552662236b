"""torch.utils.tensorboard.summary: what an event holds, as messages of the package tensorboard."""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import (
    HistogramProto,
    Summary,
    SummaryMetadata,
)
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from tilewright.ir.location import at_user_line

from ...recording import Handle


def make_np(x: Any) -> np.ndarray:
    """The array of a tensor, a number or an array, with at least one axis."""
    if isinstance(x, Handle):
        x = x.detach().cpu().numpy()
    elif not (isinstance(x, np.ndarray) or np.isscalar(x)):
        raise NotImplementedError(
            f"Got {type(x)}, but numpy array or torch tensor are expected.{at_user_line()}"
        )
    return np.atleast_1d(np.asarray(x))


def _number(x: Any) -> float:
    array = make_np(x).squeeze()
    if array.ndim:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and "
            f"{array.ndim} dimensions.{at_user_line()}"
        )
    return float(array)


def _metadata(plugin: str, content: bytes = b"") -> Any:
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return SummaryMetadata(plugin_data=data)


def _shape(*sizes: int) -> Any:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def scalar(
    name: str,
    tensor: Any,
    collections: Any = None,
    new_style: bool = False,
    double_precision: bool = False,
) -> Any:
    """A number. new_style: as a tensor, of float64 if `double_precision`."""
    number = _number(tensor)
    if not new_style:
        return Summary(value=[Summary.Value(tag=name, simple_value=number)])
    held = (
        TensorProto(dtype="DT_DOUBLE", double_val=[number])
        if double_precision
        else TensorProto(dtype="DT_FLOAT", float_val=[number])
    )
    return Summary(value=[Summary.Value(tag=name, tensor=held, metadata=_metadata("scalars"))])


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How many values lie in each bucket. bins: what numpy.histogram takes; max_bins: join
    neighbours until there are about so many."""
    flat = make_np(values).astype(np.float64).reshape(-1)
    if not flat.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(flat, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        joined = len(counts) // max_bins
        padded = np.pad(counts, (0, -len(counts) % joined))
        counts = padded.reshape(-1, joined).sum(1)
        limits = np.append(limits[:-1:joined], limits[-1])
    held = np.flatnonzero(counts)
    if not held.size:
        raise ValueError("The histogram is empty, please file a bug report.")
    # The buckets that hold values, behind an empty one that ends where they begin.
    counts = np.append(0, counts)[held[0] : held[-1] + 2]
    limits = limits[held[0] : held[-1] + 2]
    return histogram_raw(
        name, flat.min(), flat.max(), flat.size, flat.sum(), float(flat @ flat), limits, counts
    )


def histogram_raw(
    name: str,
    min: float,
    max: float,
    num: int,
    sum: float,
    sum_squares: float,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Any:
    """A histogram whose buckets and moments are known."""
    shown = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
        bucket_limit=np.asarray(bucket_limits).tolist(),
        bucket=np.asarray(bucket_counts).tolist(),
    )  # fmt: skip
    return Summary(value=[Summary.Value(tag=name, histo=shown)])


def _grid(images: np.ndarray) -> np.ndarray:
    """(N, C, H, W) in rows of eight, as (H, W, C)."""
    count, channels, height, width = images.shape
    columns = min(count, 8)
    rows = math.ceil(count / columns)
    held = np.zeros((rows * columns, *images.shape[1:]), images.dtype)
    held[:count] = images
    laid = held.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    return laid.reshape(rows * height, columns * width, channels)


def _pixels(tensor: Any, dataformats: str) -> np.ndarray:
    """Pictures as (H, W, 3 or 4), in the numbers that they have. A gray one becomes colored."""
    array, order = make_np(tensor), dataformats.upper()
    if len(set(order)) != len(order):
        raise AssertionError(f"You can not use the same dimension shordhand twice: {dataformats}")
    if array.ndim != len(order):
        raise ValueError(
            f"size of input tensor and input format are different. tensor shape: {array.shape},"
            f" input_format: {dataformats}"
        )
    if "C" not in order:
        array, order = array[None], f"C{order}"
    if "N" in order:
        array = _grid(array.transpose([order.index(axis) for axis in "NCHW"]))
    else:
        array = array.transpose([order.index(axis) for axis in "HWC"])
    return np.repeat(array, 3, 2) if array.shape[2] == 1 else array


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """An image of uint8, or of floats from 0 to 1. dataformats: the order of its axes."""
    from PIL import Image

    array = _pixels(tensor, dataformats)
    scale = 1 if array.dtype == np.uint8 else 255
    array = np.clip(array.astype(np.float32) * scale, 0, 255).astype(np.uint8)
    picture, data = Image.fromarray(array), io.BytesIO()
    if rescale != 1:
        sizes = int(picture.width * rescale), int(picture.height * rescale)
        picture = picture.resize(sizes, Image.Resampling.LANCZOS)
    picture.save(data, "PNG")
    shown = Summary.Image(
        height=picture.height,
        width=picture.width,
        colorspace=array.shape[2],
        encoded_image_string=data.getvalue(),
    )
    return Summary(value=[Summary.Value(tag=tag, image=shown)])


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """One channel of sound: floats from -1 to 1, of shape (frames,) or (1, frames)."""
    array = make_np(tensor).squeeze()
    if array.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    if np.abs(array).max(initial=0) > 1:
        print("warning: audio amplitude out of range, auto clipped.")
    frames = (array.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(frames.tobytes())
    sound = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(frames),
        encoded_audio_string=data.getvalue(),
        content_type="audio/wav",
    )
    return Summary(value=[Summary.Value(tag=tag, audio=sound)])


def text(tag: str, text: str) -> Any:
    """A text, as Markdown."""
    held = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=_shape(1))
    value = Summary.Value(tag=f"{tag}/text_summary", metadata=_metadata("text"), tensor=held)
    return Summary(value=[value])


def pr_curve(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Any:
    """Precision and recall of probabilities at evenly spaced thresholds.

    labels: 0 or 1; predictions: from 0 to 1. The tensor has true and false positives, true and
    false negatives, precision and recall as its six rows.
    """
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    count = min(num_thresholds, 127)  # what TensorBoard's page shows
    wanted = make_np(labels).reshape(-1).astype(np.float64)
    weight = np.ones_like(wanted) if weights is None else make_np(weights).reshape(-1)
    places = np.floor(make_np(predictions).reshape(-1) * (count - 1)).astype(np.int32)

    def at_least(weighted: np.ndarray) -> np.ndarray:
        held, _ = np.histogram(places, bins=count, range=(0, count - 1), weights=weighted)
        return held[::-1].cumsum()[::-1]

    tp, fp = at_least(wanted * weight), at_least((1 - wanted) * weight)
    tn, fn = fp[0] - fp, tp[0] - tp
    precision, recall = tp / np.maximum(1e-7, tp + fp), tp / np.maximum(1e-7, tp + fn)
    rows = np.stack([tp, fp, tn, fn, precision, recall])
    held = TensorProto(
        dtype="DT_FLOAT", float_val=rows.reshape(-1).tolist(), tensor_shape=_shape(*rows.shape)
    )
    content = PrCurvePluginData(version=0, num_thresholds=count).SerializeToString()
    value = Summary.Value(tag=tag, metadata=_metadata("pr_curves", content), tensor=held)
    return Summary(value=[value])


def hparams(
    hparam_dict: Mapping[str, Any] | None = None,
    metric_dict: Mapping[str, Any] | None = None,
    hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
) -> tuple[Any, Any, Any]:
    """A row of TensorBoard's table of hyperparameters: the experiment, the start and the end.

    hparam_dict: numbers, booleans, texts or tensors of one element; those that are None are left
    out. hparam_domain_discrete: the values that a hyperparameter may have.
    """
    from tensorboard.plugins.hparams import (
        api_pb2,
        metadata,
        plugin_data_pb2,
    )

    given, metrics = hparam_dict or {}, metric_dict or {}
    if not isinstance(given, Mapping) or not isinstance(metrics, Mapping):
        raise TypeError(
            "parameter: hparam_dict and metric_dict should be a dictionary, nothing logged."
        )
    domains = hparam_domain_discrete or {}
    start = plugin_data_pb2.SessionStartInfo()
    infos: list[Any] = []
    domain: type[str] | type[float]
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, str):
            kind, domain = api_pb2.DATA_TYPE_STRING, str
            start.hparams[name].string_value = value
        elif isinstance(value, bool | int | float | Handle):
            kind, domain = api_pb2.DATA_TYPE_FLOAT64, float
            start.hparams[name].number_value = _number(value)
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        info = api_pb2.HParamInfo(name=name, type=kind)
        if name in domains:
            info.domain_discrete.extend(map(domain, domains[name]))
        infos.append(info)
    experiment = api_pb2.Experiment(
        hparam_infos=infos,
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics],
    )
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)

    def held(tag: str, **content: Any) -> Any:
        data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
        shown = _metadata(metadata.PLUGIN_NAME, data.SerializeToString())
        return Summary(value=[Summary.Value(tag=tag, metadata=shown)])

    return (
        held(metadata.EXPERIMENT_TAG, experiment=experiment),
        held(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        held(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """A film [n, t, c, h, w] as an animated picture."""
    from PIL import Image

    array = make_np(tensor)
    if array.dtype != np.uint8:
        array = np.clip(array * 255, 0, 255).astype(np.uint8)
    count, frames, channels, height, width = array.shape
    columns = 2 ** math.ceil(math.log2(count) / 2)
    rows = -(-count // columns)
    padded = np.zeros((rows * columns, *array.shape[1:]), np.uint8)
    padded[:count] = array
    wide = padded.reshape(rows, columns, frames, channels, height, width)
    wide = wide.transpose(2, 0, 4, 1, 5, 3).reshape(
        frames, rows * height, columns * width, channels
    )
    pictures = [Image.fromarray(f[..., 0] if channels == 1 else f) for f in wide]
    data = io.BytesIO()
    pictures[0].save(
        data, "GIF", save_all=True, append_images=pictures[1:], duration=1000 / fps, loop=0
    )
    shown = Summary.Image(
        height=pictures[0].height,
        width=pictures[0].width,
        colorspace=channels,
        encoded_image_string=data.getvalue(),
    )
    return Summary(value=[Summary.Value(tag=tag, image=shown)])


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: Any) -> Any:
    """Points, colours and triangles, each as a tensor."""
    import json

    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    kinds = MeshPluginData.ContentType
    given = [(vertices, kinds.VERTEX), (faces, kinds.FACE), (colors, kinds.COLOR)]
    parts = [(make_np(v), kind) for v, kind in given if v is not None]
    components = metadata.get_components_bitmask([kind for _, kind in parts])
    values = []
    for array, kind in parts:
        held = TensorProto(
            dtype="DT_FLOAT",
            tensor_shape=_shape(*array.shape),
            float_val=array.reshape(-1).tolist(),
        )
        about = metadata.create_summary_metadata(
            tag, "", kind, components, array.shape, json_config=json.dumps(config or {})
        )
        name = metadata.get_instance_name(tag, kind)
        values.append(Summary.Value(tag=name, tensor=held, metadata=about))
    return Summary(value=values)

"""torch.utils.tensorboard: event files, written by the package tensorboard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.summary.writer.record_writer import RecordWriter
except ImportError as error:
    raise ModuleNotFoundError(
        "torch.utils.tensorboard needs the package tensorboard: pip install tensorboard"
    ) from error

from . import summary

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]


class FileWriter:
    """Writes events into one file of a folder."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ):
        folder = os.fspath(log_dir)
        self.event_writer = EventFileWriter(folder, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        return self.event_writer.get_logdir()  # type: ignore[no-any-return]

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        self.event_writer.flush()

    def close(self) -> None:
        self.event_writer.close()


class SummaryWriter:
    """Writes scalars, histograms, pictures, sounds, texts and tables of hyperparameters into an
    event file that TensorBoard shows."""

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
        self.log_dir, self.purge_step = os.fspath(log_dir), purge_step
        side = np.cumprod([1e-12, *[1.1] * 773])  # to 1e20
        self.default_bins = [*-side[::-1], 0.0, *side]
        self._options = (max_queue, flush_secs, filename_suffix)
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    @property
    def file_writer(self) -> FileWriter | None:
        """The writer of this folder; None once all are closed."""
        return (self.all_writers or {}).get(self.log_dir)

    def _get_file_writer(self) -> FileWriter:
        """The writer of this folder. A closed one begins a file of its own."""
        if self.all_writers is None:
            self.all_writers = {}
            main = self._writer(self.log_dir)
            if self.purge_step is not None:
                main.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.purge_step = None
        return self.all_writers[self.log_dir]

    def _writer(self, folder: str) -> FileWriter:
        assert self.all_writers is not None
        if folder not in self.all_writers:
            self.all_writers[folder] = FileWriter(folder, *self._options)
        return self.all_writers[folder]

    def get_logdir(self) -> str:
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        made = summary.scalar(
            tag, scalar_value, new_style=new_style, double_precision=double_precision
        )
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several scalars of one picture, each in a folder of its own."""
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            made = summary.scalar(main_tag, value)
            self._writer(folder).add_summary(made, global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """bins: what numpy.histogram takes, or "tensorflow" for buckets that grow by a tenth."""
        if isinstance(bins, str) and bins == "tensorflow":
            bins = self.default_bins
        made = summary.histogram(tag, values, bins, max_bins)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        made = summary.image(tag, img_tensor, dataformats=dataformats)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several images as one, in rows of eight."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib, or a list of figures, as an image."""
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        pictures = []
        for each in figure if isinstance(figure, list) else [figure]:
            canvas = FigureCanvasAgg(each)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[..., :3])
            if close:
                pyplot.close(each)
        if isinstance(figure, list):
            self.add_image(tag, np.stack(pictures), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, pictures[0], global_step, walltime, "HWC")

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        made = summary.audio(tag, snd_tensor, sample_rate)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        made = summary.text(tag, text_string)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        made = summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """A row of the table of hyperparameters, in a folder of its own."""
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as row:
            for part in parts:
                row._get_file_writer().add_summary(part, global_step)
            for name, value in metric_dict.items():
                row.add_scalar(name, value, global_step)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """The calls of model(*input_to_model), in the scopes of its modules."""
        from ._pytorch_graph import graph

        made = graph(model, input_to_model, verbose, use_strict_trace)
        event = Event(graph_def=made.SerializeToString())
        self._get_file_writer().add_event(event)

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Vectors [n, d] for the projector, with labels and pictures [n, c, h, w]."""
        from google.protobuf import text_format  # type: ignore[import-untyped]
        from tensorboard.plugins.projector.projector_config_pb2 import (
            EmbeddingInfo,
            ProjectorConfig,
        )

        from . import _embedding

        vectors = summary.make_np(mat)
        if vectors.ndim != 2:
            raise ValueError("mat should be 2D, where mat.size(0) is the number of data points")
        for name, given in (("metadata", metadata), ("label_img", label_img)):
            if given is not None and len(given) != len(vectors):
                raise ValueError(f"#{name} should equal with #data points")
        folder = f"{0 if global_step is None else global_step:05d}/{tag.replace('/', '_')}"
        path = os.path.join(self.log_dir, folder)
        os.makedirs(path, exist_ok=True)
        _embedding.write_vectors(path, vectors)
        info = EmbeddingInfo(tensor_name=f"{tag}:{folder[:5]}", tensor_path=f"{folder}/tensors.tsv")
        if metadata is not None:
            _embedding.write_labels(path, metadata, metadata_header)
            info.metadata_path = f"{folder}/metadata.tsv"
        if label_img is not None:
            _embedding.write_sprite(path, label_img)
            info.sprite.image_path = f"{folder}/sprite.png"
            info.sprite.single_image_dim.extend([label_img.shape[3], label_img.shape[2]])
        self._projector = getattr(self, "_projector", None) or ProjectorConfig()
        self._projector.embeddings.append(info)
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "w") as file:
            file.write(text_format.MessageToString(self._projector))

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """A film [n, t, c, h, w] of uint8, or of floats from 0 to 1; several stand side by side."""
        made = summary.video(tag, vid_tensor, fps)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Points in space [b, n, 3], with their colours and the triangles between them."""
        made = summary.mesh(tag, vertices, colors, faces, config_dict)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def flush(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

"""torch.utils.tensorboard: graphs, vectors, films and meshes, as TensorBoard reads them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn

pytest.importorskip("tensorboard")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc = nn.Sequential(nn.Linear(72, 3), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.fc(tw.relu(self.conv(x)).view(x.shape[0], -1))


def written(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = folder.glob("events*")
    return list(EventFileLoader(str(file)).Load())


def test_the_graph_has_calls_in_the_scopes_of_modules(tmp_path: Path) -> None:
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    from tilewright.utils.tensorboard import SummaryWriter

    net = Net()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, tw.ones(2, 1, 8, 8))
    (data,) = (e.graph_def for e in written(tmp_path) if e.graph_def)
    nodes = {n.name: n for n in GraphDef.FromString(data).node}
    assert list(nodes["Net/fc/0/linear"].input) == [
        "Net/relu", "Net/fc/0/weight", "Net/fc/0/bias",
    ]  # fmt: skip
    assert list(nodes["output/0"].input) == ["Net/fc/1/relu"] and net.training
    (shape,) = nodes["Net/relu"].attr["_output_shapes"].list.shape
    assert [d.size for d in shape.dim] == [2, 2, 6, 6]


def test_vectors_films_and_meshes(tmp_path: Path) -> None:
    from tilewright.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        vectors = tw.arange(6.0).view(3, 2)
        writer.add_embedding(vectors, list("abc"), tw.rand(3, 1, 4, 6), global_step=3, tag="v")
        with pytest.raises(ValueError, match="#metadata should equal"):
            writer.add_embedding(vectors, ["a"])
        writer.add_mesh("m", tw.rand(1, 4, 3), faces=tw.tensor([[[0, 1, 2], [1, 2, 3]]]))
        writer.add_video("film", tw.rand(3, 2, 3, 4, 4), fps=5)
    values = {v.tag: v for e in written(tmp_path) for v in e.summary.value}
    assert {"m_VERTEX", "m_FACE"} <= values.keys() and "m_COLOR" not in values
    assert values["m_FACE"].tensor.float_val[:] == [0, 1, 2, 1, 2, 3]
    assert values["film"].tensor.string_val[:2] == [b"8", b"8"]
    assert (tmp_path / "00003/v/tensors.tsv").read_text() == "0.0\t1.0\n2.0\t3.0\n4.0\t5.0\n"
    assert (tmp_path / "00003/v/metadata.tsv").read_text() == "a\nb\nc\n"
    assert (tmp_path / "00003/v/sprite.png").exists()
    assert 'tensor_path: "00003/v/tensors.tsv"' in (tmp_path / "projector_config.pbtxt").read_text()


@pytest.mark.torch
def test_what_is_no_number_is_refused_as_by_pytorch(torch: Any, tmp_path: Path) -> None:
    found = []
    for m in (tw, torch):
        tensorboard = importlib.import_module(f"{m.__name__}.utils.tensorboard")
        with tensorboard.SummaryWriter(tmp_path / m.__name__) as writer:
            found.append([])
            for wrong in (["a", "b"], [1.0], None, {}, m.ones(2), np.ones((2, 1)), "a"):
                with pytest.raises(Exception) as caught:
                    writer.add_scalar("x", wrong, 1)
                found[-1].append(caught.type)
            for right in ("3", True, m.ones(1, 1), np.float32(2)):
                writer.add_scalar("x", right, 1)
            sums = {"min": 0.0, "max": 2.0, "num": 2, "sum": 2.0, "sum_squares": 4.0}
            writer.add_histogram_raw("h", **sums, bucket_limits=[1.0, 2.0], bucket_counts=[1, 1])
    assert found[0] == found[1]

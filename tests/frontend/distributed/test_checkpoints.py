"""torch.distributed.checkpoint beside PyTorch's: each reads the folders of the other."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")


def dcp(m: Any, path: str = "") -> Any:
    return importlib.import_module(f"{m.__name__}.distributed.checkpoint{path}")


def model(m: Any, fill: float) -> tuple[Any, Any]:
    layers = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4))
    optimizer = m.optim.SGD(layers.parameters(), lr=fill, momentum=0.5)
    for i, p in enumerate(layers.parameters()):
        p.data.fill_(fill + i)
        p.grad = m.full_like(p, 0.25 * i)
    optimizer.step()
    return layers, optimizer


def state(m: Any, fill: float = 0.5) -> dict[str, Any]:
    layers, optimizer = model(m, fill)
    half = m.full((3,), fill, dtype=m.bfloat16)
    return {
        "model": layers.state_dict(), "optimizer": optimizer.state_dict(), "step": int(fill * 10),
        "lists": [m.full((2,), fill), {"a": fill}, [1, 2]], "half": half, "name": f"at {fill}",
        "pair": (m.full((1,), fill), 2), "whole": m.tensor(int(fill * 4)),
    }  # fmt: skip


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): flat(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(flat(v) for v in value)
    if hasattr(value, "detach"):
        return np.asarray(value.detach().float().numpy()).tolist(), str(value.dtype)
    return value


@pytest.mark.parametrize("writer", ["tilewright", "torch"])
@pytest.mark.parametrize("reader", ["tilewright", "torch"])
def test_both_read_both(torch: Any, tmp_path: Path, writer: str, reader: str) -> None:
    source, target = (importlib.import_module(name) for name in (writer, reader))
    saved = state(source)
    found = dcp(source).save(saved, checkpoint_id=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".metadata", "__0_0.distcp"]
    if writer == reader == "tilewright":
        other = dcp(torch).save(state(torch), checkpoint_id=tmp_path / "other")
        assert list(found.state_dict_metadata) == list(other.state_dict_metadata)
        assert found.planner_data == other.planner_data
        assert {k.fqn for k in found.storage_data} == {k.fqn for k in other.storage_data}
    asked = state(target, 1.5)
    kept = asked["model"]["0.weight"]
    dcp(target).load(asked, checkpoint_id=tmp_path)
    assert flat(asked) == flat(saved) and asked["model"]["0.weight"] is kept
    facts = dcp(target).FileSystemReader(tmp_path).read_metadata()
    assert tuple(facts.state_dict_metadata["model.0.weight"].size) == (4, 3)
    assert str(facts.state_dict_metadata["half"].properties.dtype) == "torch.bfloat16"


class Counter:
    def __init__(self, count: int):
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, given: dict[str, Any]) -> None:
        self.count = given["count"]


def test_objects_give_and_take_their_states(torch: Any, tmp_path: Path) -> None:
    for m in (tw, torch):
        layers, optimizer = model(m, 0.5)
        path = tmp_path / m.__name__
        dcp(m).save({"m": layers, "o": optimizer, "c": Counter(5)}, checkpoint_id=path)
        others, later = model(m, 2.0)
        counter = Counter(0)
        dcp(m).load({"m": others, "o": later, "c": counter}, checkpoint_id=path)
        assert counter.count == 5 and flat(others.state_dict()) == flat(layers.state_dict())
        assert later.state_dict()["param_groups"][0]["lr"] == 0.5


def test_what_does_not_fit(torch: Any, tmp_path: Path) -> None:
    for m in (tw, torch):
        path, d = tmp_path / m.__name__, dcp(m)
        d.save({"a": m.ones(2, 3), "b": {"c": 1}}, checkpoint_id=path)
        for asked, message in (
            ({"a": m.zeros(3, 3)}, "Size mismatch"),
            ({"z": m.zeros(2)}, "Missing key in checkpoint state_dict: z."),
            ({"b": {"d": 1}}, "Missing key in checkpoint state_dict: b.d."),
        ):
            with pytest.raises(dcp(m, ".api").CheckpointException, match=message):
                d.load(asked, checkpoint_id=path)
        partial = {"a": m.zeros(2, 3), "z": 9}
        d.load(partial, checkpoint_id=path, planner=d.DefaultLoadPlanner(allow_partial_load=True))
        assert flat(partial["a"])[0] == [[1, 1, 1]] * 2 and partial["z"] == 9
        for call in (d.save, d.load):
            with pytest.raises(RuntimeError, match="must be specified"):
                call({"a": 1})
        with pytest.raises(dcp(m, ".api").CheckpointException):
            d.load({"a": m.zeros(2, 3)}, checkpoint_id=tmp_path / "nowhere")
        wide = {"a": m.zeros(2, 3, dtype=m.float64)}  # the tensor keeps its dtype
        d.load(wide, checkpoint_id=path)
        assert flat(wide["a"]) == ([[1, 1, 1]] * 2, "torch.float64")


def test_saving_beside_the_program(tmp_path: Path) -> None:
    values = tw.ones(3)
    future = dcp(tw).async_save({"a": values, "n": 1}, checkpoint_id=tmp_path)
    values.fill_(9)
    assert list(future.result().state_dict_metadata) == ["a", "n"]
    asked = {"a": tw.zeros(3), "n": 0}
    dcp(tw).load(asked, checkpoint_id=tmp_path)
    assert asked["a"].tolist() == [1, 1, 1] and asked["n"] == 1


def test_between_folders_and_single_files(torch: Any, tmp_path: Path) -> None:
    found = []
    for m in (tw, torch):
        folder, file = tmp_path / f"{m.__name__}d", tmp_path / f"{m.__name__}.pt"
        dcp(m).save(state(m), checkpoint_id=folder)
        dcp(m, ".format_utils").dcp_to_torch_save(folder, file)
        whole = m.load(file, weights_only=False)
        dcp(m, ".format_utils").torch_save_to_dcp(file, tmp_path / f"{m.__name__}e")
        asked = {"half": m.zeros(3, dtype=m.bfloat16)}
        dcp(m).load(asked, checkpoint_id=tmp_path / f"{m.__name__}e")
        found.append((flat(whole), flat(asked)))
    assert found[0] == found[1]
    some = dcp(tw, ".state_dict_loader")._load_state_dict_from_keys(
        {"lists", "model.0"}, checkpoint_id=tmp_path / "torchd"
    )
    assert flat(some["lists"]) == flat(state(tw)["lists"]) and list(some) == ["model", "lists"]


def test_parts_of_tensors_are_put_together(torch: Any, tmp_path: Path) -> None:
    """A folder as processes with parts of a tensor write it."""
    d = dcp(torch, ".metadata")
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    whole, places, data = torch.arange(12.0).view(4, 3), {}, b""
    import io
    import pickle

    for i, start in enumerate((0, 1)):
        part = whole[start : start + 1 + 2 * i].clone()
        buffer = io.BytesIO()
        torch.save(part, buffer)
        index = d.MetadataIndex("w", torch.Size([start, 0]), i)
        places[index] = _StorageInfo("__0_0.distcp", len(data), len(buffer.getvalue()))
        data += buffer.getvalue()
    chunks = [
        d.ChunkStorageMetadata(torch.Size([s, 0]), torch.Size([n, 3])) for s, n in ((0, 1), (1, 3))
    ]
    facts = d.TensorStorageMetadata(d.TensorProperties(torch.float32), torch.Size([4, 3]), chunks)
    (tmp_path / "__0_0.distcp").write_bytes(data)
    metadata = d.Metadata({"w": facts}, {"w": ("w",)}, places, None, "1.0.0")
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    asked = {"w": tw.zeros(4, 3)}
    dcp(tw).load(asked, checkpoint_id=tmp_path)
    np.testing.assert_array_equal(asked["w"].numpy(), whole.numpy())


def test_metadata_builds_nothing_else(tmp_path: Path) -> None:
    import pickle

    (tmp_path / ".metadata").write_bytes(pickle.dumps(tmp_path))
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / ".metadata").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(RuntimeError, match="no metadata"):
        dcp(tw).FileSystemReader(tmp_path).read_metadata()
    with pytest.raises(tw.serialization.pickle.UnpicklingError, match="not on the list"):
        dcp(tw).FileSystemReader(tmp_path / "evil").read_metadata()

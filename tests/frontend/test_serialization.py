"""Saving and loading: PyTorch's files both ways, what is refused, and damaged files."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn as nn


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_state_dicts(tmp_path):
    one, two = model(), model()
    path = tmp_path / "model.pt"
    tw.save(one.state_dict(), path)
    state = tw.load(path)
    assert isinstance(state, OrderedDict) and state._metadata[""] == {"version": 1}
    two.load_state_dict(state)
    x = tw.randn(5, 3)
    assert tw.equal(one.eval()(x), two.eval()(x))
    assert os.listdir(tmp_path) == ["model.pt"]  # nothing temporary is left
    first = path.read_bytes()
    tw.save(one.state_dict(), path)
    assert path.read_bytes() == first


def test_checkpoint_with_an_optimizer(tmp_path):
    net = model()
    optimizer = tw.optim.AdamW(net.parameters(), lr=0.1)
    net(tw.randn(5, 3)).sum().backward()
    optimizer.step()
    path = str(tmp_path / "checkpoint.pth")
    tw.save({"epoch": 3, "model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    checkpoint = tw.load(path, weights_only=True)
    other = tw.optim.AdamW(net.parameters())
    other.load_state_dict(checkpoint["optimizer"])
    assert checkpoint["epoch"] == 3 and other.param_groups[0]["lr"] == 0.1
    assert other.state_dict()["state"][0]["step"].item() == 1


def everything(lib):
    x = lib.arange(12).reshape(3, 4)
    return {
        "x": x, "row": x[1:], "transposed": x.t(), "columns": x[:, ::2], "empty": lib.zeros(0, 3),
        "scalar": lib.tensor(2.5), "bf16": lib.tensor([1.0, 2.0]).to(lib.bfloat16),
        "f16": lib.tensor([1.0, 2.0]).half(), "bool": lib.tensor([True, False]),
        "bytes": lib.tensor([1, 2]).to(lib.uint8), "double": lib.tensor([1.0]).double(),
        "dtype": lib.float32, "size": x.shape, "device": x.device,
        "parameter": lib.nn.Parameter(lib.ones(2)), "leaf": lib.ones(1, requires_grad=True),
        "plain": [1, 2.5, "text", None, True, (1, {"k": b"v"}), {1, 2}],
        "ordered": OrderedDict(a=1),
    }  # fmt: skip


def check(data, lib):
    assert set(data) == set(everything(lib))
    x = data["x"]
    assert x.tolist() == np.arange(12).reshape(3, 4).tolist() and x.dtype is lib.int64
    assert data["row"].tolist() == x.tolist()[1:]
    assert data["transposed"].tolist() == np.arange(12).reshape(3, 4).T.tolist()
    assert data["columns"].tolist() == np.arange(12).reshape(3, 4)[:, ::2].tolist()
    assert tuple(data["empty"].shape) == (0, 3) and data["scalar"].item() == 2.5
    assert data["bf16"].dtype is lib.bfloat16 and data["bf16"].tolist() == [1, 2]
    assert data["f16"].dtype is lib.float16 and data["bool"].tolist() == [True, False]
    assert data["bytes"].dtype is lib.uint8 and data["double"].dtype is lib.float64
    assert data["dtype"] is lib.float32 and data["size"] == (3, 4)
    assert data["device"] == lib.device("cpu")
    assert isinstance(data["parameter"], lib.nn.Parameter) and data["leaf"].requires_grad
    assert data["plain"] == [1, 2.5, "text", None, True, (1, {"k": b"v"}), {1, 2}]
    assert list(data["ordered"]) == ["a"]
    x[1, 0] = 99  # memory that was shared still is
    assert data["row"][0, 0].item() == 99 and data["transposed"][0, 1].item() == 99


def test_all_kinds_of_objects(tmp_path):
    tw.save(everything(tw), tmp_path / "a.pt")
    check(tw.load(tmp_path / "a.pt"), tw)


def test_pytorch_reads_our_files(torch, tmp_path):
    tw.save(everything(tw), tmp_path / "a.pt")
    check(torch.load(tmp_path / "a.pt", weights_only=True), torch)


def test_we_read_pytorchs_files(torch, tmp_path):
    torch.save(everything(torch), tmp_path / "a.pt")
    check(tw.load(tmp_path / "a.pt"), tw)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    )
    torch.save(theirs.state_dict(), tmp_path / "b.pt")
    ours = model()
    ours.load_state_dict(tw.load(tmp_path / "b.pt"))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(
        ours.eval()(tw.tensor(x)).detach().numpy(),
        theirs.eval()(torch.tensor(x)).detach().numpy(),
        rtol=1e-5,
    )


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)


def test_whole_modules_and_the_allow_list(tmp_path):
    path = tmp_path / "module.pt"
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    tw.save(net, path)
    with pytest.raises(tw.serialization.UnpicklingError, match=r"Sequential.*weights_only=False"):
        tw.load(path)
    again = tw.load(path, weights_only=False)
    x = tw.randn(3, 2)
    assert tw.equal(again(x), net(x)) and again[0].weight.requires_grad
    with tw.serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU, type(net._modules)]):
        assert isinstance(tw.load(path), nn.Sequential)
    assert not tw.serialization.get_safe_globals()


def test_code_in_a_file_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("echo evil",)

    tw.save([Evil()], tmp_path / "evil.pt")
    with pytest.raises(tw.serialization.UnpicklingError, match="system"):
        tw.load(tmp_path / "evil.pt")


def test_a_pickle_module_builds_everything(torch):
    for m in (tw, torch):
        file = io.BytesIO()
        m.save({"a": np.arange(3)}, file)

        def load(m=m, file=file, **options):
            file.seek(0)
            return m.load(file, **options)["a"].tolist()

        assert load(pickle_module=pickle) == load(weights_only=False) == [0, 1, 2]
        with pytest.raises(pickle.UnpicklingError):
            load()
        with pytest.raises(RuntimeError, match="explicit pickle_module"):
            load(pickle_module=pickle, weights_only=True)


def test_file_objects_and_map_location(tmp_path):
    buffer = io.BytesIO()
    tw.save({"a": tw.ones(2), "b": [tw.zeros(1)]}, buffer)
    for where in ("cpu", tw.device("cpu"), {"cpu": "cpu"}, lambda tensor, place: tensor):
        buffer.seek(0)
        assert tw.load(buffer, map_location=where)["a"].tolist() == [1, 1]
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="No CUDA GPUs"):
        tw.load(buffer, map_location="cuda")


class Upload:
    """A file object that knows no place, and sends what it has when it is flushed."""

    def __init__(self) -> None:
        self.written, self.sent = b"", []

    def write(self, content) -> None:
        self.written += bytes(content)

    def flush(self) -> None:
        self.sent.append(self.written)

    def tell(self) -> int:
        raise NotImplementedError

    seek = read = tell


def test_a_file_object_that_knows_no_place(torch):
    for m in (tw, torch):
        file = Upload()
        with pytest.raises(NotImplementedError):
            m.load(file)
        m.save({"a": m.arange(3), "b": [m.zeros(1)]}, file)
        (sent,) = file.sent
        for reader in (tw, torch):
            assert reader.load(io.BytesIO(sent))["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["path", "stream", "function"])
def test_a_file_that_is_written_record_by_record(torch, tmp_path, kind):
    def written(m, path):
        source, parts = io.BytesIO(), io.BytesIO()
        m.save({"a": m.arange(4.0)}, source)
        source.seek(0)
        data = m.PyTorchFileReader(source).get_record("data.pkl")
        place = {"path": str(path), "stream": parts, "function": None}[kind]
        if kind == "function" and m is torch:  # which gives addresses
            place = parts
        elif kind == "function":
            place = lambda content, size: parts.write(bytes(content)[:size])  # noqa: E731
        file = m._C.PyTorchFileWriter(place)
        file.write_record("data.pkl", data + b"more", len(data))
        file.write_record("data/0", m.arange(4.0).untyped_storage(), 16)
        with pytest.raises(RuntimeError, match="Tried to serialize file twice: data/0"):
            file.write_record("data/0", "text", 4)
        names = file.archive_name(), file.get_all_written_records()
        file.write_end_of_file()
        if kind != "path":
            path.write_bytes(parts.getvalue())
        with zipfile.ZipFile(path) as records:
            found = {i.filename.partition("/")[2]: i.file_size for i in records.infolist()}
        found.pop(".data/serialization_id", None)
        return names, found

    paths = tmp_path / "a.pt", tmp_path / "theirs" / "a.pt"
    paths[1].parent.mkdir()
    assert written(tw, paths[0]) == written(torch, paths[1])
    for m in (tw, torch):
        for path in paths:
            assert m.load(path)["a"].tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="not an address"):
        tw._C.PyTorchFileWriter(io.BytesIO()).write_record("a", 4096, 4)


def test_damaged_files(tmp_path):
    path = tmp_path / "a.pt"
    tw.save({"w": tw.arange(100).float()}, path)
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(EOFError, match="not a complete file"):
        tw.load(path)
    for cut in (10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(RuntimeError, match="not a complete file"):
            tw.load(path)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        info = archive.getinfo("a/data/0")
    at = info.header_offset + 30 + len("a/data/0") + 200
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(RuntimeError, match="damaged"):
        tw.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", "x")
    with pytest.raises(RuntimeError, match=r"no data\.pkl"):
        tw.load(path)
    with pytest.raises(FileNotFoundError):
        tw.load(tmp_path / "missing.pt")
    with pytest.raises(RuntimeError, match="Parent directory"):
        tw.save(1, tmp_path / "none" / "a.pt")


@pytest.mark.parametrize("content", [b"garbage", b"", b"PK\x03\x04aaaa", b"\x80\x02}q\x00."])
def test_other_files_are_refused_with_pytorchs_classes(torch, content):
    for m in (tw, torch):
        kind = pickle.UnpicklingError if content == b"garbage" else RuntimeError
        with pytest.raises(kind if content else EOFError):
            m.load(io.BytesIO(content))


LAYOUTS = {
    "step": lambda x: x[::2],
    "columns": lambda x: x[:, 1::2],
    "transposed": lambda x: x.t(),
    "row": lambda x: x[2],
    "expand": lambda x: x[:1].expand(5, 6),
    "expand in the middle": lambda x: x[1:, None].expand(3, 2, 6),
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "strided": lambda x: x.as_strided((2, 3), (7, 2), 3),
    "permuted part": lambda x: x[1:3].t(),
    "empty": lambda x: x[4:],
    "number": lambda x: x[1, 2],
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_strides_and_sharing(torch, tmp_path, writer, legacy):
    if writer == "ours" and legacy:
        pytest.skip("ours are zip files")
    m = tw if writer == "ours" else torch
    x = m.arange(24.0).reshape(4, 6)
    saved = {name: layout(x) for name, layout in LAYOUTS.items()} | {"x": x}
    saved["bits"] = m.ones(3).to(m.bfloat16)[1:]
    options = {"_use_new_zipfile_serialization": False} if legacy else {}
    m.save(saved, tmp_path / "a.pt", **options)
    for lib in (tw, torch):
        state = lib.load(tmp_path / "a.pt")
        for name, t in saved.items():
            got = state[name]
            assert got.tolist() == t.tolist() and tuple(got.shape) == tuple(t.shape), name
            if t.numel():
                assert got.stride() == t.stride(), name
                assert got.storage_offset() == t.storage_offset(), name
        state["x"].add_(100)
        for name, layout in LAYOUTS.items():
            assert state[name].tolist() == layout(state["x"]).tolist(), name
        state["step"][1, 2] = -1.0
        assert state["x"][2, 2].item() == -1 and state["row"][2].item() == -1


def test_a_repeated_element_takes_no_memory(torch, tmp_path):
    for m in (tw, torch):
        m.save(
            {"x": m.ones(1).expand(10**11), "y": m.zeros(2, 1).expand(2, 10**10)}, tmp_path / "a"
        )
        assert os.path.getsize(tmp_path / "a") < 4000
        state = tw.load(tmp_path / "a")
        assert state["x"].shape == (10**11,) and state["x"].stride() == (0,)
        assert state["x"][12345].item() == 1 and state["y"][:, 7].tolist() == [0, 0]


def test_files_of_the_older_format(torch, tmp_path):
    path = tmp_path / "a.pt"
    torch.save(everything(torch), path, _use_new_zipfile_serialization=False)
    check(tw.load(path), tw)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    found, ours = tw.load(path), model()
    ours.load_state_dict(found["net"])
    tw.optim.Adam(ours.parameters()).load_state_dict(found["optimizer"])
    assert ours[0].weight.tolist() == net[0].weight.tolist()
    with open(path, "wb") as file:  # two in one file
        for number in (1, 2):
            torch.save(torch.ones(number), file, _use_new_zipfile_serialization=False)
    with open(path, "rb") as file:
        assert [tw.load(file).tolist() for _ in range(2)] == [[1], [1, 1]]
    torch.save([os.system], path, _use_new_zipfile_serialization=False)
    with pytest.raises(tw.serialization.UnpicklingError, match="system"):
        tw.load(path)


def files_of(lib):
    """Small files in each format."""
    shared = lib.arange(12.0).reshape(3, 4)
    data = {"w": shared, "v": shared[::2].t(), "p": lib.nn.Parameter(lib.ones(2)), "n": [1, "é"]}
    for options in ({},) if lib is tw else ({}, {"_use_new_zipfile_serialization": False}):
        buffer = io.BytesIO()
        lib.save(data, buffer, **options)
        yield buffer.getvalue()


def damaged(whole, choose):
    kind = choose.choice(("cut", "flip", "flip", "flip", "insert", "drop", "zero"))
    at = choose.randrange(len(whole))
    if kind == "cut":
        return whole[:at]
    if kind == "insert":
        return whole[:at] + bytes(choose.randrange(256) for _ in range(9)) + whole[at:]
    if kind == "drop":
        return whole[:at] + whole[at + choose.randrange(1, 40) :]
    out = bytearray(whole)
    for _ in range(choose.choice((1, 1, 3))):
        at = choose.randrange(len(out))
        out[at] = 0 if kind == "zero" else choose.randrange(256)
    return bytes(out)


def load_or_refuse(file):
    """Whether a file is refused, as files are; what it holds can be read otherwise."""
    try:
        found = tw.load(io.BytesIO(file))
    except (RuntimeError, pickle.UnpicklingError):
        return True
    for t in found.values() if isinstance(found, dict) else ():
        if isinstance(t, tw.Tensor) and t.numel() < 1000:
            t.tolist()
    return False


@pytest.mark.parametrize("lib", ["tilewright", "torch"])
def test_damaged_bytes(request, lib):
    m = tw if lib == "tilewright" else request.getfixturevalue("torch")
    refused = 0
    for number, whole in enumerate(files_of(m)):
        choose = random.Random(number)
        refused += sum(load_or_refuse(damaged(whole, choose)) for _ in range(120))
    assert refused > 60


def test_members_that_are_missing(torch):
    for m in (tw, torch):
        whole = next(iter(files_of(m)))
        names = zipfile.ZipFile(io.BytesIO(whole)).namelist()
        for gone in names:
            buffer = io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(buffer, "w") as new:
                for name in names:
                    if name != gone:
                        new.writestr(name, old.read(name))
            if gone.endswith("data.pkl") or gone.rpartition("/")[2].isdigit():
                with pytest.raises(RuntimeError, match=r"data\.pkl|damaged"):
                    tw.load(io.BytesIO(buffer.getvalue()))


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    tw.save([1], path)
    with pytest.raises(Exception, match="pickle"):
        tw.save([lambda: 1], path)
    assert tw.load(path) == [1] and os.listdir(tmp_path) == ["a.pt"]

"""Quantized numbers of 4 and 2 bits, and tables whose rows hold their scales, beside PyTorch's."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch calls all of it deprecated


def part(m: Any, path: str) -> Any:
    return importlib.import_module(f"{m.__name__}.{path}")


def drawn(m: Any, seed: int, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f"))


def by_row(m: Any, dtype: str, width: int) -> Any:
    scales, zeros = m.tensor([0.2, 0.3, 0.1]), m.tensor([3.0, 1.5, 2.0])
    return m.quantize_per_channel(drawn(m, 0, 3, width), scales, zeros, 0, getattr(m, dtype))


@pytest.mark.parametrize("width", [4, 5])
@pytest.mark.parametrize("dtype", ["quint4x2", "quint2x4"])
def test_numbers_of_less_than_a_byte(torch: Any, dtype: str, width: int) -> None:
    found = []
    for m in (tw, torch):
        whole = m.quantize_per_tensor(drawn(m, 1, 3, width), 0.3, 2, getattr(m, dtype))
        rows = by_row(m, dtype, width)
        found.append((
            *(part.numpy() for q in (whole, rows) for part in (q.int_repr(), q.dequantize())),
            repr(rows), repr(whole), rows.element_size(), rows.numel(), str(rows.qscheme()),
        ))  # fmt: skip
        with pytest.raises(NotImplementedError):
            m.quantize_per_channel(
                drawn(m, 0, 3, 4), m.ones(3), m.zeros(3, dtype=m.int32), 0, getattr(m, dtype)
            )
        with pytest.raises(RuntimeError):
            m.quantize_per_tensor_dynamic(drawn(m, 0, 3), getattr(m, dtype), False)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["quint4x2", "quint2x4", "quint8"])
def test_files_of_them(torch: Any, dtype: str) -> None:
    for source, target in ((tw, torch), (torch, tw)):
        file = io.BytesIO()
        whole = source.quantize_per_tensor(drawn(source, 1, 3, 5), 0.3, 2, getattr(source, dtype))
        source.save([whole, by_row(source, dtype, 5)], file)
        file.seek(0)
        # PyTorch's weights_only knows no scheme with zero points of floats.
        for q, wanted in zip(
            target.load(file, weights_only=target is tw),
            [whole, by_row(source, dtype, 5)],
            strict=True,
        ):
            assert str(q.dtype) == f"torch.{dtype}"
            np.testing.assert_array_equal(q.int_repr().numpy(), wanted.int_repr().numpy())
            np.testing.assert_array_equal(q.dequantize().numpy(), wanted.dequantize().numpy())


def test_bags_of_four_bits(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        q, layers = part(m, "ao.quantization"), part(m, "ao.nn.quantized")
        table = m.nn.EmbeddingBag(7, 6, mode="sum")
        table.weight.data.copy_(drawn(m, 2, 7, 6))
        table.qconfig = q.float_qparams_weight_only_qconfig_4bit
        made = layers.EmbeddingBag.from_float(table)
        places, starts = m.tensor([1, 2, 6, 4]), m.tensor([0, 3])
        shares = m.tensor([0.1, 0.5, 2.0, 1.0])
        found.append((
            made(places, starts).numpy(), made(places, starts, per_sample_weights=shares).numpy(),
            made.weight().int_repr().numpy(), repr(made),
            repr(layers.Embedding(3, 4, dtype=m.quint4x2)),
        ))  # fmt: skip
    (a, b, *ours), (c, d, *theirs) = found
    np.testing.assert_allclose(a, c, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(b, d, rtol=1e-6, atol=1e-6)
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_tables_of_four_bits_look_up_their_numbers() -> None:
    """PyTorch 2.13 reads other memory here: the numbers themselves are the oracle."""
    table = tw.nn.Embedding(7, 6)
    table.qconfig = tw.ao.quantization.float_qparams_weight_only_qconfig_4bit
    made = tw.ao.nn.quantized.Embedding.from_float(table)
    x = table.weight.detach().numpy()
    least, most = x.min(1, keepdims=True), x.max(1, keepdims=True)
    assert str(made.weight().dtype) == "torch.quint4x2"
    error = np.abs(made(tw.arange(7)).numpy() - x)
    assert (error <= (most - least) / 15 / 2 + 1e-5).all() and error.max() > 1e-3


@pytest.mark.parametrize("kind", ["byte", "4bit", "2bit"])
def test_rows_that_hold_their_scales(torch: Any, kind: str) -> None:
    found: list[list[Any]] = []
    for m in (tw, torch):
        ops = m.ops.quantized
        pack, unpack, bags = (
            getattr(ops, f"embedding_bag_{kind}_{name}")
            for name in ("prepack", "unpack", "rowwise_offsets")
        )
        weight = drawn(m, 3, 9, 8)
        weight[4] = 3.0
        weight[5] = 0.0
        table = pack(weight)
        places, starts = m.tensor([1, 2, 6, 4, 8]), m.tensor([0, 3])
        shares = m.tensor([0.1, 0.5, 2.0, 1.0, -1.0])
        found.append([
            table, pack(weight.half()), pack(weight[:0]), unpack(table),
            bags(table, places, starts), bags(table, places, starts, per_sample_weights=shares),
            bags(table, places, m.tensor([0, 3, 5]), include_last_offset=True),
            bags(table, places.int(), starts.int()),
        ])  # fmt: skip
        with pytest.raises(RuntimeError, match="float32 or float16"):
            pack(weight.double())
        if kind != "byte":
            with pytest.raises(RuntimeError, match="multiple of"):
                pack(weight[:, :7])
            continue
        found[-1].append(pack(weight.view(3, 3, 8)))
    for i, (ours, theirs) in enumerate(zip(*found, strict=True)):
        if i in (0, 1, 2, 8):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        else:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)

"""Export of models that torch.ao.quantization made: ONNX Runtime gives the same numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn
from tilewright.ao import quantization

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def held(model: Any, x: Any, tolerance: float = 0.0) -> None:
    file = io.BytesIO()
    names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    tw.onnx.export(model, (x,), file, **names)
    session = ort.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for given in (x, tw.cat([x, x * 0.5])):  # another size, too
        (found,) = session.run(None, {"x": given.numpy()})
        np.testing.assert_allclose(found, model(given).detach().numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [tw.qint8, tw.float16])
def test_dynamic_products(dtype: Any) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    held(quantization.quantize_dynamic(net, {nn.Linear}, dtype=dtype), tw.randn(3, 8))


def test_dynamic_recurrent_layers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.out(self.layer(x)[0])

    held(quantization.quantize_dynamic(Net(), {nn.LSTM, nn.Linear}), tw.randn(3, 2, 4), 1e-6)


class Static(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.pool, self.second = nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1)
        self.sum, self.mean = tw.ao.nn.quantized.FloatFunctional(), nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        h = self.pool(self.relu(self.norm(self.conv(self.quant(x)))))
        h = self.mean(self.sum.add(h, self.second(h)))
        return self.dequant(self.linear(h.flatten(1)))


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
def test_static(engine: str) -> None:
    net = quantization.fuse_modules(Static().eval(), [["conv", "norm", "relu"]])
    net.qconfig = quantization.get_default_qconfig(engine)
    prepared, x = quantization.prepare(net), tw.randn(2, 1, 8, 8)
    prepared(x)
    held(quantization.convert(prepared), x)

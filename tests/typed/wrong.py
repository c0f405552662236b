"""Mistakes that a type checker is to find: what it says of a line stands behind it."""

from __future__ import annotations

import tilewright as torch
import tilewright.nn.functional as F
from tilewright import Tensor, nn, optim
from tilewright.utils.data import DataLoader, TensorDataset

x = torch.rand(2, 3)

nn.Linear(3)  # E: Missing positional argument "out_features" in call to "Linear"
nn.Linear(3, "4")  # E: Argument 2 to "Linear" has incompatible type "str"; expected "int"
nn.Linear(3, 4, bais=False)  # E: Unexpected keyword argument "bais" for "Linear"
nn.Linear(3, 4)("x")  # E: has incompatible type "str"; expected "Tensor"
nn.Linear(3, 4)(x, x)  # E: Too many arguments for "__call__" of "Module"
nn.LSTM(3, 4, 2, True, "first")  # E: Argument 5 to "LSTM" has incompatible type "str"
nn.LeakyReLU(slope=0.1)  # E: Unexpected keyword argument "slope" for "LeakyReLU"
F.conv2d(x)  # E: Missing positional argument "weight" in call to "__call__" of "Convolution"
F.softmax(x, dim="last")  # E: "dim" to "softmax" has incompatible type "str"; expected "int | None"
F.softmax([1.0], dim=0)  # E: has incompatible type "list[float]"; expected "Tensor"
optim.Adam([x], lr="high")  # E: has incompatible type "str"; expected "float | Tensor"
optim.Adam(params=1)  # E: Argument "params" to "Adam" has incompatible type "int"
DataLoader(TensorDataset(x), batch_size=0.5)  # E: incompatible type "float"; expected "int | None"
x.summ()  # E: "Tensor" has no attribute "summ"
x.sum(dim="rows")  # E: Argument "dim" to "sum" of "Methods" has incompatible type "str"
x + "1"  # E: Unsupported operand types for + ("Tensor" and "str")
torch.rund(2)  # E: Module has no attribute "rund"
torch.zeros(2, dtype=float)  # E: has incompatible type "type[float]"; expected "DType | None"
torch.exp(1.0)  # E: has incompatible type "float"; expected "Tensor"
torch.cat([x, x], x)  # E: Argument 2 to "cat" has incompatible type "Tensor"; expected "int"
x.grad.zero_()  # E: Item "None" of "Tensor | None" has no attribute "zero_"


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


Doubled()(x, scale=2)  # E: Unexpected keyword argument "scale" for "__call__" of "Module"
total: int = Doubled()(x)  # E: expression has type "Tensor", variable has type "int"

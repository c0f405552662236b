"""torch.ao.nn.quantizable: layers whose parts are observed, and then quantized."""

from .attention import MultiheadAttention
from .recurrent import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]

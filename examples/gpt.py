"""Train a small GPT on the characters of a text, and let it write.

python examples/gpt.py TEXT [--steps 1000] [--device cpu] [--out out/gpt.pt] [--resume]

Ctrl-C ends the training early; what was learned is saved and can be resumed.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
from tqdm import trange

import tilewright as torch
import tilewright.nn as nn
import tilewright.nn.functional as F

CONTEXT, WIDTH, HEADS, LAYERS = 64, 128, 4, 4


class Attention(nn.Module):
    """Causal self-attention with one product for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Logits of the next character for (batch, time) characters, time <= CONTEXT."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, tokens: torch.Tensor, length: int) -> torch.Tensor:
        """`length` more characters after (batch, time) ones, drawn one by one."""
        for _ in range(length):
            logits = self(tokens[:, -CONTEXT:])[:, -1]
            drawn = torch.multinomial(F.softmax(logits, dim=-1), 1)
            tokens = torch.cat([tokens, drawn], dim=1)
        return tokens


class Text:
    """A text as numbers of its characters; its last tenth is held out."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.characters = sorted(set(text))
        self._number = {c: i for i, c in enumerate(self.characters)}
        data = self.encode(text)
        held_out = max(len(data) // 10, CONTEXT + 2)
        if len(data) < 2 * held_out:
            raise SystemExit(f"{path}: expected some thousand characters, got {len(data)}")
        self.train, self.test = data[:-held_out], data[-held_out:]

    def encode(self, text: str) -> np.ndarray:
        return np.array([self._number[c] for c in text], np.int64)

    def decode(self, numbers: list[int]) -> str:
        return "".join(self.characters[n] for n in numbers)


def batch(data: np.ndarray, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the text and, for each of their characters, the one that follows."""
    starts = rng.integers(0, len(data) - CONTEXT, (size, 1)) + np.arange(CONTEXT)
    return data[starts], data[starts + 1]


def loss_on(model: GPT, pair: tuple[np.ndarray, np.ndarray], device: str) -> torch.Tensor:
    tokens, following = (torch.from_numpy(part).to(device) for part in pair)
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--write", type=int, default=300, help="characters to write at the end")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/gpt.pt"))
    parser.add_argument("--resume", action="store_true", help="go on from what --out holds")
    options = parser.parse_args()

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    text = Text(options.text)
    model = GPT(len(text.characters)).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    if options.resume:
        saved = torch.load(options.out)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    start = time.perf_counter()
    bar = trange(options.steps, desc="training", unit="step")
    try:
        for step in bar:
            optimizer.zero_grad()
            loss = loss_on(model, batch(text.train, rng, options.batch), options.device)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                bar.set_postfix(loss=f"{loss.item():.3f}")
    except KeyboardInterrupt:
        bar.close()
        print("interrupted; what was learned so far is kept")
    seconds = time.perf_counter() - start

    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, options.out)
    model.eval()
    with torch.no_grad():
        held_out = batch(text.test, np.random.default_rng(1), 128)
        loss = loss_on(model, held_out, options.device).item()
    bits = loss / math.log(2)
    print(
        f"{bar.n} steps in {seconds:.1f} s; held-out loss {loss:.3f} ({bits:.2f} bits a character)"
    )
    print(f"the model is in {options.out}; it writes:")
    prompt = torch.from_numpy(text.encode(text.characters[0]))[None].to(options.device)
    print(text.decode(model.write(prompt, options.write)[0].tolist()))


if __name__ == "__main__":
    main()

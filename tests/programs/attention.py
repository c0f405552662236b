"""Transformers: training, generation, attention with a cache."""

from __future__ import annotations

import itertools
import math

from . import program, update


class Attention:
    """Makes a module of a new class each time, as the base class Module depends on the
    framework."""

    def __new__(cls, torch, size, heads):
        nn = torch.nn

        class CausalSelfAttention(nn.Module):
            def __init__(self):
                super().__init__()
                # No bias: the keys' bias has a gradient of mere rounding errors, which Adam
                # enlarges.
                self.c_attn = nn.Linear(size, 3 * size, bias=False)
                self.c_proj = nn.Linear(size, size)
                self.register_buffer("bias", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

            def forward(self, x):
                B, T, C = x.size()
                q, k, v = self.c_attn(x).split(size, dim=2)
                q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in (q, k, v))
                att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
                att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
                y = torch.nn.functional.softmax(att, dim=-1) @ v
                return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

        return CausalSelfAttention()


def gpt(torch, words=7, size=4):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.attn = Attention(torch, size, 2)
            self.mlp = nn.Sequential(nn.Linear(size, 8), nn.GELU(), nn.Linear(8, size))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.ModuleDict(
                dict(
                    wte=nn.Embedding(words, size),
                    wpe=nn.Embedding(8, size),
                    h=nn.ModuleList([Block() for _ in range(2)]),
                    ln_f=nn.LayerNorm(size),
                )
            )
            self.lm_head = nn.Linear(size, words, bias=False)
            self.transformer.wte.weight = self.lm_head.weight

        def forward(self, idx, targets=None):
            pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            loss = nn.functional.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
            return logits, loss

        @torch.no_grad()
        def generate(self, idx, count):
            for _ in range(count):
                logits, _ = self(idx[:, -8:])
                logits = logits[:, -1, :] / 0.8
                v, _ = torch.topk(logits, 3)
                logits[logits < v[:, [-1]]] = -float("Inf")
                probs = nn.functional.softmax(logits, dim=-1)
                idx = torch.cat((idx, probs.argmax(-1, keepdim=True)), dim=1)
            return idx

    return GPT()


@program
def gpt_trainer(torch, draw):
    """Decayed and undecayed groups, a cosine by hand, clipping, sparse evaluation."""
    model = draw.into(gpt(torch))
    params = dict(model.named_parameters())
    groups = [
        {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    data = draw.classes(7, 60)

    def get_batch():
        ix = [draw.below(50) for _ in range(2)]
        x = torch.stack([data[i : i + 5] for i in ix])
        return x, torch.stack([data[i + 1 : i + 6] for i in ix])

    @torch.no_grad()
    def estimate_loss():
        model.eval()
        losses = torch.zeros(2)
        for k in range(2):
            losses[k] = model(*get_batch())[1].item()
        model.train()
        return losses.mean()

    for step in itertools.count():
        lr = 0.005 * (1 + math.cos(math.pi * (step % 10) / 10))
        for group in optimizer.param_groups:
            group["lr"] = lr
        evaluated = estimate_loss() if step % 3 == 0 else None
        for _ in range(2):
            _, loss = model(*get_batch())
            (loss / 2).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield evaluated, loss, norm, model


@program
def gpt_generates(torch, draw):
    model = draw.into(gpt(torch), 1.0).eval()
    while True:
        yield model.generate(draw.classes(7, 1, 3), 4)[0].tolist()


@program
def attention_with_a_cache(torch, draw):
    """Keys and values grow by `cat`, or are written into a buffer."""
    nn = torch.nn
    q_proj, kv_proj = draw.into(nn.Linear(4, 4)), draw.into(nn.Linear(4, 8))
    while True:
        with torch.no_grad():
            keys = values = None
            k_buffer, v_buffer = torch.zeros(1, 6, 4), torch.zeros(1, 6, 4)
            outputs = []
            x = draw(1, 1, 4)
            for t in range(4):
                k, v = kv_proj(x).chunk(2, -1)
                keys = k if keys is None else torch.cat([keys, k], 1)
                values = v if values is None else torch.cat([values, v], 1)
                k_buffer[:, t : t + 1] = k
                v_buffer[:, t : t + 1].copy_(v)
                w = torch.softmax(q_proj(x) @ keys.transpose(1, 2) / 2, -1)
                x = w @ values
                again = torch.softmax(q_proj(x) @ k_buffer[:, : t + 1].mT / 2, -1)
                outputs.append((x, again @ v_buffer[:, : t + 1]))
            both = [torch.cat(o, 1) for o in zip(*outputs)]
        yield both[0].tolist(), both[1], keys, k_buffer, v_buffer


@program
def transformer_classifier(torch, draw):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    encoder = draw.into(nn.TransformerEncoder(layer, 2))
    words, head = draw.into(nn.Embedding(9, 4, padding_idx=0)), draw.into(nn.Linear(4, 2))
    everything = nn.ModuleList([encoder, words, head])
    optimizer = torch.optim.SGD(everything.parameters(), lr=0.05)
    while True:
        x = draw.classes(9, 3, 5)
        x[:, 0] = 1
        padding = x == 0
        h = encoder(words(x), src_key_padding_mask=padding)
        h = h.masked_fill(padding.unsqueeze(-1), 0).sum(1) / (~padding).sum(1, keepdim=True)
        loss = nn.functional.cross_entropy(head(h), draw.classes(2, 3))
        update(optimizer, loss)
        yield loss, everything

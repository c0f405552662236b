"""Scripts of language models and sequences."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from task import choose, draw, settle, task
from training import steps

WORDS = 50
IDS, NEXT = choose(WORDS, 2, 12), choose(WORDS, 2, 12, seed=1)


def predicted(model, make=torch.optim.AdamW, count=3, **options):
    settle(model).train()
    optimizer = make(model.parameters(), **(options or {"lr": 1e-3}))

    def loss():
        logits = model(IDS)
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), NEXT.reshape(-1))

    yield from steps(model, loss, optimizer, count)


@task("word language model: LSTM with tied weights, clipped gradients, states carried on")
def word_lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Embedding(WORDS, 16)
            self.rnn = nn.LSTM(16, 16, 2)
            self.decoder = nn.Linear(16, WORDS)
            self.decoder.weight = self.encoder.weight

        def forward(self, x, hidden):
            output, hidden = self.rnn(self.encoder(x), hidden)
            return F.log_softmax(self.decoder(output).view(-1, WORDS), dim=1), hidden

    model = settle(Model())
    hidden = (torch.zeros(2, 2, 16), torch.zeros(2, 2, 16))
    for step in range(3):
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(IDS.t()[step * 4 : step * 4 + 4], hidden)
        loss = F.nll_loss(output, NEXT.t()[step * 4 : step * 4 + 4].reshape(-1))
        loss.backward()
        yield f"norm {step}", torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-20)
        yield f"loss {step}", loss.item()


@task("word language model: transformer with sines as positions")
def word_transformer():
    class Positions(nn.Module):
        def __init__(self, width):
            super().__init__()
            place = torch.arange(32).unsqueeze(1)
            step = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
            pe = torch.zeros(32, width)
            pe[:, 0::2], pe[:, 1::2] = torch.sin(place * step), torch.cos(place * step)
            self.register_buffer("pe", pe)

        def forward(self, x):
            return x + self.pe[: x.size(1)]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, 16), Positions(16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, WORDS)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
            return self.head(self.body(self.places(self.words(x) * 4.0), mask=mask, is_causal=True))

    yield from predicted(Model())


class Attention(nn.Module):
    def __init__(self, width, heads, by_hand):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.by_hand = heads, by_hand
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.qkv(x).split(c, dim=2)
        )
        if self.by_hand:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class GPT(nn.Module):
    def __init__(self, by_hand):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([
            nn.ModuleDict({
                "ln1": nn.LayerNorm(32), "attn": Attention(32, 4, by_hand), "ln2": nn.LayerNorm(32),
                "mlp": nn.Sequential(
                    nn.Linear(32, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 32)
                ),
            }) for _ in range(2)
        ])  # fmt: skip
        self.ln, self.head = nn.LayerNorm(32), nn.Linear(32, WORDS, bias=False)

    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.size(1)))
        for block in self.blocks:
            h = h + block["attn"](block["ln1"](h))
            h = h + block["mlp"](block["ln2"](h))
        return self.head(self.ln(h))

    @torch.no_grad()
    def generate(self, x, count):
        for _ in range(count):
            x = torch.cat((x, self(x[:, -16:])[:, -1].argmax(-1, keepdim=True)), dim=1)
        return x


@task("minGPT: attention by hand, groups of decayed weights, greedy generation")
def mingpt():
    model = settle(GPT(True))
    decay = {n for n, p in model.named_parameters() if p.dim() > 1}
    groups = [
        {"params": [p for n, p in model.named_parameters() if n in decay], "weight_decay": 0.1},
        {"params": [p for n, p in model.named_parameters() if n not in decay], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    loss = lambda: F.cross_entropy(model(IDS).view(-1, WORDS), NEXT.view(-1))  # noqa: E731
    yield from steps(model, loss, optimizer)
    yield "made", model.eval().generate(IDS[:, :4], 12)


@task("nanoGPT: fused attention, tied weights, accumulation, warmup and cosine decay, a scaler")
def nanogpt():
    model = GPT(False)
    model.wte.weight = model.head.weight
    settle(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for step in range(4):
        rate = 1e-3 * (step + 1) / 3 if step < 2 else 5e-4 * (1 + math.cos(math.pi * step / 4))
        for group in optimizer.param_groups:
            group["lr"] = rate
        for micro in range(2):
            logits = model(IDS[micro : micro + 1])
            loss = (
                F.cross_entropy(logits.view(-1, WORDS), NEXT[micro].view(-1), ignore_index=-1) / 2
            )
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        yield f"loss {step}", loss.item()


@task("nanoGPT under bfloat16 autocast", tolerance=2e-2)
def nanogpt_half():
    model = settle(GPT(False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(IDS).view(-1, WORDS), NEXT.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield f"loss {step}", loss.item()


@task("makemore: bigrams, an MLP by hand with batch norms, manual updates")
def makemore():
    counts = torch.zeros(27, 27)
    for a, b in zip(choose(27, 200).tolist(), choose(27, 200, seed=1).tolist()):
        counts[a, b] += 1
    chance = (counts + 1) / (counts + 1).sum(1, keepdim=True)
    yield "bigrams", -chance.log().mean().item()
    c, w1, w2 = draw(27, 10), draw(30, 20, seed=1, scale=0.2), draw(20, 27, seed=2, scale=0.1)
    gain, bias = torch.ones(1, 20), torch.zeros(1, 20)
    parameters = [c, w1, w2, gain, bias]
    for p in parameters:
        p.requires_grad = True
    x, y = choose(27, 32, 3), choose(27, 32, seed=3)
    for step in range(4):
        h = c[x].view(x.shape[0], -1) @ w1
        h = gain * (h - h.mean(0, keepdim=True)) / (h.var(0, keepdim=True) + 1e-5).sqrt() + bias
        loss = F.cross_entropy(torch.tanh(h) @ w2, y)
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.data += -0.1 * p.grad
        yield f"loss {step}", loss.item()


@task("makemore: WaveNet's pairs, GRU and bag of words")
def makemore_others():
    class Pairs(nn.Module):
        def forward(self, x):
            b, t, c = x.shape
            return x.view(b, t // 2, c * 2)

    wave = nn.Sequential(
        nn.Embedding(WORDS, 8), Pairs(), nn.Linear(16, 16), nn.Tanh(), Pairs(), nn.Linear(32, 16),
        nn.Tanh(), nn.Flatten(), nn.Linear(48, WORDS),
    )  # fmt: skip
    settle(wave)
    loss = lambda: F.cross_entropy(wave(IDS), NEXT[:, 0])  # noqa: E731
    yield from steps(wave, loss, torch.optim.AdamW(wave.parameters(), 1e-2))

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.cell = nn.Embedding(WORDS, 8), nn.GRUCell(8, 16)
            self.start, self.head = nn.Parameter(torch.zeros(1, 16)), nn.Linear(16, WORDS)

        def forward(self, x):
            h, out = self.start.expand(x.size(0), -1), []
            for t in range(x.size(1)):
                h = self.cell(self.words(x[:, t]), h)
                out.append(h)
            return self.head(torch.stack(out, 1))

    for name, value in predicted(Cell()):
        yield f"GRU {name}", value


@task("Llama in one file: RMSNorm, rotary places, SwiGLU, grouped heads, a cache")
def llama():
    def rotated(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
            self.o, self.up = nn.Linear(32, 32, bias=False), nn.Linear(32, 96, bias=False)
            self.down = nn.Linear(48, 32, bias=False)
            self.n1, self.n2 = nn.RMSNorm(32), nn.RMSNorm(32)

        def forward(self, x, cos, sin, cache=None):
            b, t, _ = x.shape
            h = self.n1(x)
            q = rotated(self.q(h).view(b, t, 4, 8).transpose(1, 2), cos, sin)
            k, v = self.kv(h).view(b, t, 2, 2, 8).permute(2, 0, 3, 1, 4)
            k = rotated(k, cos, sin)
            if cache is not None:
                k, v = (torch.cat([*cache.get(n, []), u], 2) for n, u in (("k", k), ("v", v)))
                cache.update(k=[k], v=[v])
            k, v = (u.repeat_interleave(2, 1) for u in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, 32))
            gate, value = self.up(self.n2(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * value)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS, bias=False)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(2)), nn.RMSNorm(32)

        def forward(self, x, caches=None, start=0):
            turn = torch.outer(
                torch.arange(start, start + x.size(1)).float(), 100.0 ** (-torch.arange(4) / 4)
            )
            h = self.words(x)
            for k, block in enumerate(self.blocks):
                h = block(h, turn.cos(), turn.sin(), caches and caches[k])
            return self.head(self.norm(h))

    model = Model()
    yield from predicted(model)
    with torch.inference_mode():
        caches, made = [{}, {}], IDS[:1, :4]
        logits = model(made, caches)
        for _ in range(6):
            new = logits[:, -1:].argmax(-1)
            made = torch.cat((made, new), 1)
            logits = model(new, caches, made.size(1) - 1)
    yield "made", made


@task("mixture of experts with top-2 routing and a balancing loss")
def experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.gate, self.head = (
                nn.Embedding(WORDS, 16),
                nn.Linear(16, 4),
                nn.Linear(16, WORDS),
            )
            self.each = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(4)
            )

        def forward(self, x):
            h = self.words(x).flatten(0, 1)
            chance, chosen = self.gate(h).softmax(-1).topk(2, dim=-1)
            out = torch.zeros_like(h)
            for k, expert in enumerate(self.each):
                rows, slot = torch.where(chosen == k)
                if rows.numel():
                    out = out.index_add(0, rows, expert(h[rows]) * chance[rows, slot, None])
            return self.head(h + out)

    yield from predicted(Experts())


@task("translation: GRU encoder, attention decoder, teacher forcing")
def translation():
    enc, emb = nn.GRU(16, 16, batch_first=True), nn.Embedding(WORDS, 16)
    dec, mix, head = nn.GRUCell(32, 16), nn.Linear(16, 16), nn.Linear(16, WORDS)
    model = settle(nn.ModuleList([enc, emb, dec, mix, head]))

    def loss():
        states, h = enc(emb(IDS))
        h, total = h[0], 0
        for t in range(5):
            weights = torch.bmm(states, mix(h).unsqueeze(2)).squeeze(2).softmax(1)
            context = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
            h = dec(torch.cat((emb(NEXT[:, t]), context), 1), h)
            total = total + F.cross_entropy(head(h), NEXT[:, t + 1])
        return total / 5

    yield from steps(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3))


@task("translation: nn.Transformer with masks and padding, greedy decoding")
def seq2seq():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, 16, padding_idx=0)
            self.t = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, WORDS)

        def forward(self, source, target):
            causal = torch.triu(torch.ones(target.size(1), target.size(1), dtype=torch.bool), 1)
            out = self.t(
                self.words(source), self.words(target), tgt_mask=causal,
                src_key_padding_mask=source == 0, memory_key_padding_mask=source == 0,
            )  # fmt: skip
            return self.head(out)

    model, source = settle(Model()), IDS.clone()
    source[1, 8:] = 0
    loss = lambda: F.cross_entropy(model(source, NEXT[:, :-1]).flatten(0, 1), NEXT[:, 1:].flatten())  # noqa: E731
    yield from steps(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98)))
    model.eval()
    made = torch.ones(2, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(5):
            made = torch.cat([made, model(source, made)[:, -1].argmax(1, keepdim=True)], 1)
    yield "made", made


@task("text classes: EmbeddingBag; names by a character RNN; packed LSTMs")
def classes():
    bag, head = nn.EmbeddingBag(WORDS, 16), nn.Linear(16, 4)
    model = settle(nn.ModuleList([bag, head]))
    offsets = torch.tensor([0, 5, 11])
    loss = lambda: F.cross_entropy(head(bag(IDS.flatten(), offsets)), torch.tensor([0, 3, 1]))  # noqa: E731
    yield from steps(model, loss, torch.optim.SGD(model.parameters(), lr=1.0))
    first, out = settle(nn.Linear(WORDS + 8, 8)), settle(nn.Linear(WORDS + 8, 4), seed=1)
    hidden = torch.zeros(1, 8)
    for letter in IDS[0, :5]:
        both = torch.cat((F.one_hot(letter, WORDS).float().unsqueeze(0), hidden), 1)
        hidden, made = torch.tanh(first(both)), out(both)
    yield "letters", made.log_softmax(1)
    packed = nn.utils.rnn.pack_padded_sequence(draw(3, 6, 8), [6, 4, 1], batch_first=True)
    lstm = settle(nn.LSTM(8, 10, bidirectional=True, batch_first=True))
    made, sizes = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
    yield "packed", made
    yield "sizes", sizes


@task("a tagger with a CRF's forward algorithm and Viterbi")
def crf():
    emb, lstm, head = nn.Embedding(WORDS, 8), nn.LSTM(8, 6, bidirectional=True), nn.Linear(12, 4)
    moves = nn.Parameter(torch.zeros(4, 4))
    model = settle(nn.ModuleList([emb, lstm, head]))
    with torch.no_grad():
        moves.copy_(draw(4, 4, scale=0.3))
    tags = choose(4, 12)

    def features():
        return head(lstm(emb(IDS[0]).unsqueeze(1))[0].squeeze(1))

    def loss():
        scores = features()
        alpha = scores[0]
        for row in scores[1:]:
            alpha = torch.logsumexp(alpha.unsqueeze(1) + moves, 0) + row
        gold = scores[torch.arange(12), tags].sum() + moves[tags[:-1], tags[1:]].sum()
        return torch.logsumexp(alpha, 0) - gold

    yield from steps(
        model, loss, torch.optim.SGD([*model.parameters(), moves], lr=0.01, weight_decay=1e-4)
    )
    best, back = features()[0], []
    for row in features()[1:]:
        value, place = (best.unsqueeze(1) + moves).max(0)
        best, back = value + row, [*back, place]
    path = [int(best.argmax())]
    for place in reversed(back):
        path.append(int(place[path[-1]]))
    yield "path", path[::-1]


@task("Whisper's model: mel frames, sines, cross attention, greedy transcription")
def whisper():
    def sines(length, width):
        steps = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
        turn = torch.arange(length)[:, None] * steps[None, :]
        return torch.cat([torch.sin(turn), torch.cos(turn)], dim=1)

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.v, self.o = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.k = nn.Linear(16, 16, bias=False)

        def forward(self, x, other=None, mask=None):
            other = x if other is None else other
            q, k, v = (
                u.view(*u.shape[:2], 2, 8).permute(0, 2, 1, 3) * s
                for u, s in ((self.q(x), 8**-0.25), (self.k(other), 8**-0.25), (self.v(other), 1))
            )
            w = q @ k.transpose(-1, -2)
            w = w if mask is None else w + mask[: x.shape[1], : x.shape[1]]
            return self.o((F.softmax(w.float(), -1).to(q.dtype) @ v).permute(0, 2, 1, 3).flatten(2))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
            self.a, self.b, self.c = Heads(), Heads(), Heads()
            self.n = nn.ModuleList(nn.LayerNorm(16) for _ in range(4))
            self.words, self.places = nn.Embedding(WORDS, 16), nn.Parameter(torch.zeros(16, 16))
            self.register_buffer("mask", torch.full((16, 16), -math.inf).triu_(1), persistent=False)
            self.register_buffer("sines", sines(20, 16))

        def forward(self, mel, x):
            h = F.gelu(self.c2(F.gelu(self.c1(mel)))).permute(0, 2, 1) + self.sines
            h = h + self.a(self.n[0](h))
            t = self.words(x) + self.places[: x.shape[1]]
            t = t + self.b(self.n[1](t), mask=self.mask)
            t = t + self.c(self.n[2](t), h)
            return (self.n[3](t) @ self.words.weight.t()).float()

    model, mel = settle(Model()), draw(2, 8, 40)
    loss = lambda: F.cross_entropy(model(mel, IDS).flatten(0, 1), NEXT.flatten())  # noqa: E731
    yield from steps(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3))
    made = torch.ones(2, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(5):
            made = torch.cat([made, model(mel, made)[:, -1].argmax(-1, keepdim=True)], -1)
    yield "made", made


@task("speech: M5 on waves, a spectrogram by stft, CTC")
def speech():
    wave = draw(2, 1, 1600)
    m5 = settle(nn.Sequential(
        nn.Conv1d(1, 8, 80, 16), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(8, 16, 3),
        nn.BatchNorm1d(16), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5),
    ))  # fmt: skip
    loss = lambda: F.nll_loss(m5(wave).log_softmax(-1), torch.tensor([1, 4]))  # noqa: E731
    yield from steps(m5, loss, torch.optim.Adam(m5.parameters(), lr=0.01, weight_decay=1e-4), 2)
    spectrum = torch.stft(wave[:, 0], 64, 32, window=torch.hann_window(64), return_complex=True)
    power = spectrum.abs().pow(2)
    yield "power", power
    net = settle(nn.Linear(33, 6))
    chances = net(power.clamp(min=1e-6).log().permute(2, 0, 1)).log_softmax(-1)
    lengths = torch.full((2,), chances.shape[0])
    loss = nn.CTCLoss()(chances, choose(6, 2, 5, low=1), lengths, torch.tensor([5, 3]))
    loss.backward()
    yield "ctc", loss.item()
    yield "gradient", net.weight.grad

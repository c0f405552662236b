"""Recurrent nets, language models, attention with caches, searches."""

from __future__ import annotations

import itertools
import math

from . import program, update


def repackage(h):
    """Hidden states, away from their history."""
    return tuple(repackage(v) for v in h) if isinstance(h, tuple) else h.detach()


@program
def word_language_model(torch, draw):
    """Truncated backpropagation through time, clipping, and an update by hand."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self, words, size):
            super().__init__()
            self.encoder = nn.Embedding(words, size)
            self.rnn = nn.LSTM(size, size, 2)
            self.decoder = nn.Linear(size, words)
            self.decoder.weight = self.encoder.weight

        def forward(self, x, hidden):
            out, hidden = self.rnn(self.encoder(x), hidden)
            return nn.functional.log_softmax(self.decoder(out).view(-1, 7), dim=1), hidden

        def init_hidden(self, batch):
            weight = next(self.parameters())
            return (weight.new_zeros(2, batch, 4), weight.new_zeros(2, batch, 4))

    model = draw.into(Model(7, 4))
    text = draw.classes(7, 40, 2)
    hidden = model.init_hidden(2)
    total, lr = 0.0, 0.2
    for step in itertools.count():
        at = 4 * step % 32
        x, y = text[at : at + 4], text[at + 1 : at + 5].view(-1)
        model.zero_grad()
        hidden = repackage(hidden)
        output, hidden = model(x, hidden)
        loss = nn.functional.nll_loss(output, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        yield loss, norm, total, hidden, model


@program
def truncated_gru_with_an_optimizer(torch, draw):
    rnn, head = draw.into(torch.nn.GRU(2, 4)), draw.into(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.05)
    h = torch.zeros(1, 3, 4)
    losses = []
    while True:
        out, h = rnn(draw(5, 3, 2), h)
        loss = head(out).pow(2).mean()
        update(optimizer, loss)
        h = h.detach()
        losses.append(loss.item())
        yield losses[-1], h, rnn, head


@program
def state_detached_in_place(torch, draw):
    cell = draw.into(torch.nn.GRUCell(2, 3))
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.01)
    h = torch.zeros(2, 3)
    while True:
        loss = 0
        for _ in range(3):
            h = cell(draw(2, 2), h)
            loss = loss + h.sum(1).pow(2).mean()
        update(optimizer, loss)
        before = h.requires_grad, h.is_leaf
        h.detach_()
        yield loss, before, h, cell


@program
def truncated_with_longer_windows(torch, draw):
    """k1 = 1, k2 = 3: states are kept with the leaf they were detached to, and the gradient is
    handed on from one to the next."""
    cell = draw.into(torch.nn.RNNCell(2, 3))
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.05)
    states = [(None, torch.zeros(1, 3))]
    while True:
        state = states[-1][1].detach()
        state.requires_grad = True
        new = cell(draw(1, 2), state)
        states.append((state, new))
        while len(states) > 3:
            del states[0]
        loss = new.pow(2).sum()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        for i in range(len(states) - 2):
            if states[-i - 2][0] is None:
                break
            carried = states[-i - 1][0].grad
            states[-i - 2][1].backward(carried, retain_graph=True)
        optimizer.step()
        yield loss, state, cell


@program(varies="places that are written to are part of a plan")
def character_rnn_by_hand(torch, draw):
    """The classifier of names: a cell of linear layers, one letter at a time, updated by hand."""
    nn = torch.nn

    class RNN(nn.Module):
        def __init__(self, inputs, hidden, outputs):
            super().__init__()
            self.hidden_size = hidden
            self.i2h = nn.Linear(inputs + hidden, hidden)
            self.i2o = nn.Linear(inputs + hidden, outputs)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, x, hidden):
            both = torch.cat((x, hidden), 1)
            return self.softmax(self.i2o(both)), torch.tanh(self.i2h(both))

        def initHidden(self):
            return torch.zeros(1, self.hidden_size)

    rnn = draw.into(RNN(5, 4, 3))
    criterion = nn.NLLLoss()
    while True:
        letters = torch.zeros(3 + draw.below(2), 1, 5)
        for i in range(letters.size(0)):
            letters[i][0][draw.below(5)] = 1
        hidden = rnn.initHidden()
        rnn.zero_grad()
        for i in range(letters.size()[0]):
            output, hidden = rnn(letters[i], hidden)
        loss = criterion(output, draw.classes(3, 1))
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        guess = output.topk(1)[1][0].item()
        yield loss.item(), guess, rnn


@program
def sine_waves_with_lstm_cells(torch, draw):
    """Time sequence prediction: two cells over a sequence, a closure, and predictions ahead."""
    nn = torch.nn

    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1 = nn.LSTMCell(1, 4)
            self.lstm2 = nn.LSTMCell(4, 4)
            self.linear = nn.Linear(4, 1)

        def forward(self, x, future=0):
            outputs = []
            h1 = c1 = torch.zeros(x.size(0), 4)
            h2 = c2 = torch.zeros(x.size(0), 4)
            for part in x.split(1, dim=1):
                h1, c1 = self.lstm1(part, (h1, c1))
                h2, c2 = self.lstm2(h1, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            for _ in range(future):
                h1, c1 = self.lstm1(output, (h1, c1))
                h2, c2 = self.lstm2(h1, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            return torch.cat(outputs, dim=1)

    seq = draw.into(Sequence(), 0.3)
    criterion = nn.MSELoss()
    data = torch.sin(torch.arange(6) / 2.0 + torch.tensor([[0.0], [1.0], [2.0]]))
    x, target = data[:, :-1], data[:, 1:]
    optimizer = torch.optim.SGD(seq.parameters(), lr=0.1)
    while True:

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(x), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        with torch.no_grad():
            ahead = seq(x, future=2)
            test = criterion(ahead[:, :-2], target)
        yield loss, test.item(), ahead, seq


@program
def translation_with_teacher_forcing(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    encoder, decoder = draw.into(nn.GRU(3, 4)), draw.into(nn.GRU(3, 4))
    words, out = draw.into(nn.Embedding(6, 3)), draw.into(nn.Linear(4, 6))
    enc_opt = torch.optim.SGD([*encoder.parameters(), *words.parameters()], lr=0.1)
    dec_opt = torch.optim.SGD([*decoder.parameters(), *out.parameters()], lr=0.1)
    while True:
        source, target = draw.classes(6, 4), draw.classes(6, 3)
        enc_opt.zero_grad()
        dec_opt.zero_grad()
        hidden = torch.zeros(1, 1, 4)
        for word in source:
            _, hidden = encoder(words(word).view(1, 1, -1), hidden)
        loss = 0
        word = torch.tensor([0])
        forced = draw.chance()
        for i in range(3):
            step, hidden = decoder(words(word).view(1, 1, -1), hidden)
            scores = F.log_softmax(out(step[0]), dim=1)
            loss += F.nll_loss(scores, target[i : i + 1])
            if forced:
                word = target[i : i + 1]
            else:
                word = scores.topk(1)[1].squeeze(0).detach()
                if word.item() == 5:
                    break
        loss.backward()
        enc_opt.step()
        dec_opt.step()
        yield loss.item() / 3, hidden, encoder, decoder, words


@program
def decoder_with_additive_attention(torch, draw):
    nn = torch.nn
    query, key, score = (draw.into(nn.Linear(4, n, bias=False)) for n in (4, 4, 1))
    cell, head = draw.into(nn.GRUCell(4, 4)), draw.into(nn.Linear(4, 5))
    net = nn.ModuleList([query, key, score, cell, head])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    while True:
        memory, h = draw(2, 3, 4), torch.zeros(2, 4)
        lengths = torch.tensor([3, 2])
        mask = torch.arange(3)[None, :] < lengths[:, None]
        losses, weights = [], []
        for _ in range(3):
            energy = score(torch.tanh(query(h).unsqueeze(1) + key(memory))).squeeze(-1)
            weight = torch.softmax(energy.masked_fill(~mask, float("-inf")), -1)
            context = torch.bmm(weight.unsqueeze(1), memory).squeeze(1)
            h = cell(context, h)
            losses.append(nn.functional.cross_entropy(head(h), draw.classes(5, 2)))
            weights.append(weight.detach())
        loss = torch.stack(losses).mean()
        update(optimizer, loss)
        yield loss, torch.stack(weights, 1), net


@program
def beam_search(torch, draw):
    """Beams are picked again at each word by positions, along with the states."""
    nn = torch.nn
    cell, words, out = nn.GRUCell(4, 4), nn.Embedding(6, 4), nn.Linear(4, 6)
    for m in (cell, words, out):
        draw.into(m, 1.0)
    while True:
        with torch.no_grad():
            h = draw(1, 4).expand(3, 4)
            tokens = torch.zeros(3, 1, dtype=torch.long)
            scores = torch.tensor([0.0, -1e9, -1e9])
            for _ in range(4):
                h = cell(words(tokens[:, -1]), h)
                found = torch.log_softmax(out(h), -1) + scores[:, None]
                scores, flat = found.view(-1).topk(3)
                beam, word = torch.div(flat, 6, rounding_mode="floor"), flat % 6
                tokens = torch.cat([tokens[beam], word[:, None]], 1)
                h = h.index_select(0, beam)
            lengths = torch.arange(5).expand(3, -1)
            best = tokens.gather(0, scores.argmax().view(1, 1).expand(1, 5))
        yield tokens.tolist(), scores, best, lengths, h


class Attention:
    """Made by a function, as the class of modules depends on the framework."""

    def __new__(cls, torch, size, heads):
        nn = torch.nn

        class CausalSelfAttention(nn.Module):
            def __init__(self):
                super().__init__()
                # No bias: that of the keys has a gradient of roundings, which Adam enlarges.
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
    """Keys and values grow by `cat`, or are written to places of a buffer."""
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


@program
def padded_sequences_by_length(torch, draw):
    nn = torch.nn
    rnn, head = draw.into(nn.LSTM(2, 3, batch_first=True)), draw.into(nn.Linear(3, 2))
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
    while True:
        parts = [draw(n, 2) for n in (4, 2, 3)]
        x = nn.utils.rnn.pad_sequence(parts, batch_first=True)
        lengths = torch.tensor([len(p) for p in parts])
        out, _ = rnn(x)
        last = out[torch.arange(3), lengths - 1]
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        loss = nn.functional.cross_entropy(head(last), draw.classes(2, 3))
        loss = loss + 0.1 * out[mask].pow(2).mean()
        update(optimizer, loss)
        yield loss, last, mask, rnn, head


@program
def tagging_one_sentence_at_a_time(torch, draw):
    nn = torch.nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(8, 3)
            self.lstm = nn.LSTM(3, 2, bidirectional=True)
            self.tag = nn.Linear(4, 3)

        def forward(self, sentence):
            out, _ = self.lstm(self.words(sentence).view(len(sentence), 1, -1))
            return nn.functional.log_softmax(self.tag(out.view(len(sentence), -1)), dim=1)

    model = draw.into(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for length in (3, 4):
            model.zero_grad()
            scores = model(draw.classes(8, length))
            loss = nn.functional.nll_loss(scores, draw.classes(3, length))
            loss.backward()
            optimizer.step()
        yield loss, scores.argmax(1), model


@program
def crf_forward_and_viterbi(torch, draw):
    """A conditional random field: log-sum-exp over tags forward, the best path back."""
    tags = 3
    transitions = draw(tags, tags, requires_grad=True)
    emit = draw.into(torch.nn.Linear(2, tags))
    optimizer = torch.optim.SGD([transitions, *emit.parameters()], lr=0.1)
    while True:
        scores, gold = emit(draw(4, 2)), draw.classes(tags, 4)
        alpha = scores[0]
        for score in scores[1:]:
            alpha = torch.logsumexp(alpha[:, None] + transitions + score[None], 0)
        right = scores[torch.arange(4), gold].sum() + transitions[gold[:-1], gold[1:]].sum()
        loss = torch.logsumexp(alpha, 0) - right
        update(optimizer, loss)
        back, best = [], scores[0].detach()
        for score in scores[1:]:
            best, where = (best[:, None] + transitions.detach()).max(0)
            best = best + score.detach()
            back.append(where)
        path = [best.argmax().item()]
        for where in reversed(back):
            path.append(where[path[-1]].item())
        yield loss, path[::-1], transitions, emit


@program
def frozen_reservoir(torch, draw):
    """An echo state: only the readout is fitted, by least squares."""
    w_in, w = draw(6, 2), draw(6, 6) * 0.3
    h = torch.zeros(6)
    while True:
        states = []
        for x in draw(8, 2):
            h = torch.tanh(w_in @ x + w @ h)
            states.append(h)
        S, y = torch.stack(states), draw(8, 1)
        A = S.T @ S + 0.1 * torch.eye(6)
        readout = torch.zeros(6, 1)
        for _ in range(4):  # of gradient descent, in place of a solver
            readout -= 0.05 * (A @ readout - S.T @ y)
        yield S, readout.tolist(), h


@program
def scheduled_lengths_of_windows(torch, draw):
    """Windows of another length at each step, up to three kinds."""
    rnn = draw.into(torch.nn.RNN(1, 3, batch_first=True))
    head = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.05)
    series = torch.cumsum(draw(1, 60, 1) * 0.1, 1)
    h, at = None, 0
    for step in itertools.count():
        length = 3 + step % 3
        if at + length + 1 > 60:
            h, at = None, 0
        x, y = series[:, at : at + length], series[:, at + 1 : at + length + 1]
        at += length
        out, h = rnn(x, h)
        h = h.data
        loss = ((head(out) - y) ** 2).mean()
        update(optimizer, loss)
        yield loss, h, rnn, head

"""Recurrent nets, language models, searches, taggers."""

from __future__ import annotations

import itertools
import math

from . import program, update


def repackage(h):
    """Hidden states, detached from their history."""
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
    """k1 = 1, k2 = 3: each state is kept with its detached leaf, and the gradient is passed from
    one to the next."""
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
    """The classifier of names: a cell of linear layers reads one letter at a time, with manual
    updates."""
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
    """At each word, positions select the beams and their states."""
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
    """An echo state network: only the readout is fitted, by least squares."""
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
        for _ in range(4):  # steps of gradient descent, instead of a solver
            readout -= 0.05 * (A @ readout - S.T @ y)
        yield S, readout.tolist(), h


@program
def scheduled_lengths_of_windows(torch, draw):
    """Windows with a different length at each step, of three lengths."""
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


@program
def characters_one_by_one(torch, draw):
    """Lines of other lengths, made character by character, and read by a GRU one at a time."""
    nn, F = torch.nn, torch.nn.functional
    encoder, cell = draw.into(nn.Embedding(9, 4)), draw.into(nn.GRU(4, 5))
    decoder = draw.into(nn.Linear(5, 9))
    parameters = [*encoder.parameters(), *cell.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    while True:
        length = 3 + draw.below(3)
        line, one_hot = torch.zeros(length).long(), torch.zeros(length, 1, 9)
        for i in range(length):
            line[i] = draw.below(9)
            one_hot[i][0][line[i].item()] = 1
        hidden, loss = torch.zeros(1, 1, 5), 0
        for i in range(length - 1):
            out, hidden = cell(encoder(line[i].view(1, -1)).view(1, 1, -1), hidden)
            scores = decoder(out.view(1, -1))
            loss = loss + F.cross_entropy(scores, line[i + 1].unsqueeze(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss / length, one_hot.sum(0), decoder


@program
def replay_memory(torch, draw):
    """Batches of transitions that were kept one by one; some come twice."""
    nn, F = torch.nn, torch.nn.functional
    policy, target = draw.into(nn.Linear(3, 2)), draw.into(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    memory, state = [], draw(1, 3)
    for _ in range(12):
        following = draw(1, 3)
        memory.append((state, torch.tensor([[draw.below(2)]]), following, draw(1)))
        state = following
    while True:
        picked = [memory[draw.below(12)] for _ in range(10)]
        states, actions, later, rewards = (torch.cat(part) for part in zip(*picked))
        values = policy(states).gather(1, actions)
        with torch.no_grad():
            wanted = rewards + 0.9 * target(later).max(1).values
        loss = F.smooth_l1_loss(values, wanted.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, policy


@program(varies="texts end after other numbers of words")
def words_that_rules_allow(torch, draw):
    """Scores are masked by rules, penalties and the likeliest words, text by text."""
    embedding, output = draw(10, 6), draw(6, 10)
    allowed = {0: [1, 2, 5], 1: [3, 4], 2: [3, 9]}

    def likeliest(scores):
        scores = scores.masked_fill(scores < scores.topk(4)[0][..., -1, None], -math.inf)
        ordered, places = scores.sort(descending=False)
        removed = ordered.softmax(-1).cumsum(-1) <= 0.2
        removed[..., -1:] = 0
        return scores.masked_fill(removed.scatter(1, places, removed), -math.inf)

    while True:
        texts = draw.classes(10, 3, 2)
        done = torch.zeros(3, dtype=torch.bool)
        finite, counts = [], torch.zeros(3, 10, dtype=torch.int32)
        while not done.all() and texts.shape[1] < 9:
            scores = embedding[texts].mean(1) @ output
            said = torch.gather(scores, 1, texts)
            scores = scores.scatter(1, texts, torch.where(said < 0, said * 1.3, said / 1.3))
            mask = torch.full_like(scores, -math.inf)
            for i, text in enumerate(texts):
                mask[i, allowed[int(text[-1]) % 3]] = 0
                counts[i, text[-1]] += 1
            scores = likeliest(scores + mask)
            chosen = torch.where(done, torch.zeros_like(texts[:, 0]), scores.argmax(-1))
            done |= chosen == 9
            texts = torch.cat([texts, chosen[:, None]], -1)
            finite.append(torch.isfinite(scores).sum(-1))
        yield texts, torch.stack(finite), counts, done

"""Steps of research code: matching, grids, windows, trees, returns and optimizers of its own."""

from __future__ import annotations

import math

from . import program, update


@program
def boxes_matched_to_targets(torch, draw):
    """DETR: SciPy matches predictions to targets; then generalized IoU and weighted classes."""
    from scipy.optimize import linear_sum_assignment

    nn, F = torch.nn, torch.nn.functional

    def corners(boxes):
        x, y, w, h = boxes.unbind(-1)
        return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)

    def area(boxes):
        return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])

    def generalized_iou(a, b):
        assert (a[:, 2:] >= a[:, :2]).all()
        low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
        inter = (high - low).clamp(min=0).prod(-1)
        union = area(a)[:, None] + area(b) - inter
        low, high = torch.min(a[:, None, :2], b[:, :2]), torch.max(a[:, None, 2:], b[:, 2:])
        around = (high - low).clamp(min=0).prod(-1)
        return inter / union - (around - union) / around

    queries = nn.Parameter(draw(2, 5, 6))
    heads = draw.into(nn.ModuleDict({"class": nn.Linear(6, 4), "box": nn.Linear(6, 4)}))
    optimizer = torch.optim.AdamW([queries, *heads.parameters()], lr=1e-2)
    weight = torch.ones(4)
    weight[-1] = 0.1
    while True:
        targets = [
            {"labels": draw.classes(3, n), "boxes": draw.uniform(n, 4) * 0.5 + 0.2} for n in (2, 3)
        ]
        logits, boxes = heads["class"](queries), heads["box"](queries).sigmoid()
        with torch.no_grad():
            labels = torch.cat([t["labels"] for t in targets])
            wanted = torch.cat([t["boxes"] for t in targets])
            cost = 5 * torch.cdist(boxes.flatten(0, 1), wanted, p=1)
            cost = cost - logits.flatten(0, 1).softmax(-1)[:, labels]
            cost = cost - 2 * generalized_iou(corners(boxes.flatten(0, 1)), corners(wanted))
            parts = cost.view(2, 5, -1).cpu().split([2, 3], -1)
        pairs = [linear_sum_assignment(part[i]) for i, part in enumerate(parts)]
        rows = [(torch.as_tensor(i), torch.as_tensor(j)) for i, j in pairs]
        at = (
            torch.cat([torch.full_like(i, n) for n, (i, _) in enumerate(rows)]),
            torch.cat([i for i, _ in rows]),
        )
        classes = torch.full(logits.shape[:2], 3, dtype=torch.int64)
        classes[at] = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, rows)])
        wanted = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, rows)])
        entropy = F.cross_entropy(logits.transpose(1, 2), classes, weight)
        distance = F.l1_loss(boxes[at], wanted, reduction="none").sum() / 5
        overlap = 1 - torch.diag(generalized_iou(corners(boxes[at]), corners(wanted)))
        optimizer.zero_grad()
        (entropy + 5 * distance + 2 * overlap.sum() / 5).backward()
        optimizer.step()
        yield entropy, distance, overlap, queries


@program
def grids_of_hashes(torch, draw):
    """Instant NGP's encoding: corners of cells are looked up by the hash of their places."""
    nn = torch.nn
    primes = (1, 2654435761, 805459861)

    class Grid(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(32, 2) for _ in range(2))
            corners = [[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)]
            self.register_buffer("corners", torch.tensor(corners))

        def forward(self, x):
            found = []
            for level, table in enumerate(self.tables):
                size = 1 / (3 * 2**level)
                low = torch.floor(x / size).int()
                places = low.unsqueeze(1) + self.corners
                key = torch.zeros_like(places[..., 0]).long()
                for i, prime in enumerate(primes):
                    key ^= places[..., i].long() * prime
                values, w = table(torch.tensor(31) & key), (x - low * size) / size
                values = values.view(-1, 2, 2, 2, 2)
                for i in range(3):
                    part = w[:, i].view(-1, *[1] * (3 - i))
                    values = values[:, 0] * (1 - part) + values[:, 1] * part
                found.append(values)
            return torch.cat(found, -1)

    model = draw.into(nn.Sequential(Grid(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)))
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
    while True:
        x = draw.uniform(8, 3).requires_grad_()
        y = model(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = (y - x.detach().sum(-1, keepdim=True)).square().mean() + 1e-3 * slope.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, y, slope, model


@program
def shifted_windows(torch, draw):
    """Swin: attention in windows of a rolled image, with a table of relative places and a mask."""
    nn = torch.nn
    side = 2

    def windows(x):
        b, h, w, c = x.shape
        x = x.view(b, h // side, side, w // side, side, c).permute(0, 1, 3, 2, 4, 5).contiguous()
        return x.view(-1, side * side, c)

    def image(x, h, w):
        b = x.shape[0] * side * side // (h * w)
        x = x.view(b, h // side, w // side, side, side, -1)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads))
            grid = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
            at = torch.stack(grid).flatten(1)
            apart = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0).contiguous()
            apart[:, :, 0] += side - 1
            apart[:, :, 1] += side - 1
            apart[:, :, 0] *= 2 * side - 1
            self.register_buffer("places", apart.sum(-1))
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x, mask):
            b, n, c = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            bias = self.table[self.places.view(-1)].view(n, n, -1).permute(2, 0, 1)
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias.unsqueeze(0)
            of = mask.shape[0]
            scores = scores.view(b // of, of, self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            weights = scores.view(-1, self.heads, n, n).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, n, c))

    parts, regions = (slice(0, -2), slice(-2, -1), slice(-1, None)), torch.zeros(1, 4, 4, 1)
    for number, (rows, columns) in enumerate((a, b) for a in parts for b in parts):
        regions[:, rows, columns, :] = number
    of = windows(regions).squeeze(-1)
    mask = of.unsqueeze(1) - of.unsqueeze(2)
    mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
    attention = draw.into(Attention(4, 2))
    optimizer = torch.optim.SGD(attention.parameters(), lr=1e-1, momentum=0.9)
    while True:
        x = draw(2, 4, 4, 4)
        y = attention(windows(torch.roll(x, (-1, -1), (1, 2))), mask)
        y = torch.roll(image(y, 4, 4), (1, 1), (1, 2))
        kept = (draw.uniform(2, 1, 1, 1) + 0.8).floor_()
        loss = (x + y.div(0.8) * kept).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, attention


@program
def trees_and_steps_until_halted(torch, draw):
    """A Tree-LSTM by recursion, and adaptive computation whose number of steps is read."""
    nn, width = torch.nn, 4
    model = draw.into(
        nn.ModuleDict({
            "words": nn.Embedding(9, width), "x": nn.Linear(width, 3 * width),
            "h": nn.Linear(width, 3 * width, bias=False), "forget_x": nn.Linear(width, width),
            "forget_h": nn.Linear(width, width), "halt": nn.Linear(width, 1),
        })
    )  # fmt: skip
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)

    def state(tree):
        word, *children = tree if isinstance(tree, tuple) else (tree,)
        x, below = model["words"](torch.tensor(word)), [state(child) for child in children]
        total = sum([h for _, h in below], torch.zeros(width))
        i, o, u = (model["x"](x) + model["h"](total)).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        for cell, h in below:
            c = c + torch.sigmoid(model["forget_x"](x) + model["forget_h"](h)) * cell
        return c, torch.sigmoid(o) * torch.tanh(c)

    trees = ((1, 2, (3, 4, 5)), ((6, 7, (8, 1))[0], (2, 3, (4, 5, 6))), (1, (2, (3, (4, 5)))))
    while True:
        for tree in trees:
            _, h = state(tree)
            spent, out, steps = torch.zeros(1), torch.zeros(width), 0
            while spent.item() < 0.95 and steps < 5:
                steps += 1
                part = torch.sigmoid(model["halt"](h) + 1)
                part = torch.minimum(part, 1 - spent) if steps < 5 else 1 - spent
                out, spent, h = out + part * h, spent + part, torch.tanh(model["forget_h"](h))
            loss = out.square().sum() + 0.01 * steps
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield loss, steps, out, model


@program
def distributions_of_returns(torch, draw):
    """C51: the target's atoms are projected to the fixed ones by writes at counted places."""
    actions, atoms = 3, 9  # steps of a half are exact
    net = draw.mlp(4, 6, actions * atoms)
    target = draw.mlp(4, 6, actions * atoms)
    target.load_state_dict(net.state_dict())
    support = torch.linspace(-2, 2, atoms)
    step = 4 / (atoms - 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    while True:
        now, after, chosen, reward = draw(5, 4), draw(5, 4), draw.classes(actions, 5), draw(5)
        ended = (draw.uniform(5) < 0.3).to(reward.dtype)
        with torch.no_grad():
            mean = (net(after).view(5, actions, atoms).softmax(-1) * support).sum(-1)
            best = target(after).view(5, actions, atoms).softmax(-1)
            best = best[torch.arange(5), mean.argmax(1)]
            at = reward[:, None] + 0.9 * (1 - ended)[:, None] * support
            at = (at.clamp(-2, 2) + 2) / step
            low, high = at.floor().long(), at.ceil().long()
            low = torch.where((high > 0) & (low == high), low - 1, low)
            high = torch.where((low < atoms - 1) & (low == high), high + 1, high)
            m, first = torch.zeros(5, atoms), torch.arange(5)[:, None] * atoms
            m.view(-1).index_add_(0, (low + first).view(-1), (best * (high - at)).view(-1))
            m.view(-1).index_add_(0, (high + first).view(-1), (best * (at - low)).view(-1))
        logs = net(now).view(5, actions, atoms).log_softmax(-1)[range(5), chosen]
        losses = -(m * logs).sum(1)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        for slow, fast in zip(target.parameters(), net.parameters()):
            slow.data.copy_(0.9 * slow.data + 0.1 * fast.data)
        yield losses, m, target


@program
def optimizer_with_orthogonal_steps(torch, draw):
    """Muon: steps by Newton-Schulz, in an optimizer of the user's that is saved amid training."""

    def orthogonal(g, rounds=5):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g.mT if g.size(-2) > g.size(-1) else g
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(rounds):
            square = x @ x.mT
            x = a * x + (b * square + c * square @ square) @ x
        return x.mT if g.size(-2) > g.size(-1) else x

    class Muon(torch.optim.Optimizer):
        def __init__(self, params, lr=0.02, momentum=0.95):
            super().__init__(params, {"lr": lr, "momentum": momentum})

        @torch.no_grad()
        def step(self, closure=None):
            with torch.enable_grad():
                loss = None if closure is None else closure()
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["buffer"], state["step"] = torch.zeros_like(p.grad), 0
                    state["step"] += 1
                    state["buffer"].lerp_(p.grad, 1 - group["momentum"])
                    update = p.grad.lerp_(state["buffer"], group["momentum"])
                    wide = max(1, p.size(-2) / p.size(-1)) ** 0.5
                    p.add_(orthogonal(update), alpha=-group["lr"] * wide)
            return loss

    weights = torch.nn.ParameterList([draw(6, 4) * 0.5, draw(3, 6) * 0.5])
    optimizer = Muon(weights.parameters())
    x, y = draw(8, 4), draw(8, 3)

    def closure():
        optimizer.zero_grad()
        loss = (torch.tanh(x @ weights[0].T) @ weights[1].T - y).square().mean()
        loss.backward()
        return loss

    while True:
        loss = optimizer.step(closure)
        saved = optimizer.state_dict()
        optimizer = Muon(weights.parameters())
        optimizer.load_state_dict(saved)
        yield loss, weights, optimizer


@program(varies="each tree has another shape")
def trees_of_cells(torch, draw):
    """An LSTM along the branches of trees; words are numbers of NumPy's, and so are places."""
    nn, F = torch.nn, torch.nn.functional
    words, gates = draw.into(nn.Embedding(6, 3)), draw.into(nn.Linear(3, 8))
    inner, forget = draw.into(nn.Linear(2, 8, bias=False)), draw.into(nn.Linear(2, 2))
    head = draw.into(nn.Linear(2, 3))
    layers = nn.ModuleList([words, gates, inner, forget, head])
    optimizer = torch.optim.Adagrad(layers.parameters(), 0.05)

    def states(depth):
        """The states of a tree, drawn branch by branch."""
        below = [states(depth - 1) for _ in range(draw.below(3))] if depth else []
        below = below or [(torch.zeros(2), torch.zeros(2))]
        h, c = (torch.stack(each) for each in zip(*below))
        word = draw.rng.integers(0, 6)
        i, o, u, f = (gates(words.weight[word]) + inner(h.sum(0))).chunk(4)
        kept = (torch.sigmoid(f + forget(h)) * c).sum(0)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c

    while True:
        scores = torch.zeros(3, 3)
        for tree in draw.rng.permutation(3):
            scores[tree] = head(states(2)[0])
        loss = F.cross_entropy(scores, draw.classes(3, 3))
        update(optimizer, loss)
        yield loss, scores, layers

"""Tables that are filled entry by entry."""

from __future__ import annotations

from . import program, update


@program
def soft_time_warping(torch, draw):
    """Soft-DTW: a table of alignments in which gradients flow from entry to entry."""
    net = draw.into(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    while True:
        x, y = net(draw(3, 3)), draw(3, 2)
        costs = (x[:, None] - y[None]).pow(2).sum(-1)
        table = torch.full((4, 4), float("inf"))
        table[0, 0] = 0
        for i in range(1, 4):
            for j in range(1, 4):
                before = torch.stack([table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]])
                table[i, j] = costs[i - 1, j - 1] - torch.logsumexp(-before, 0)
        update(optimizer, table[3, 3])
        yield table[3, 3], table, net


@program
def forward_algorithm_in_a_table(torch, draw):
    """The forward algorithm of a CRF, whose table gets a row at a time."""
    net = draw.into(torch.nn.Linear(4, 5))
    transitions = torch.nn.Parameter(draw(5, 5))
    optimizer = torch.optim.Adam([transitions, *net.parameters()], lr=0.05)
    while True:
        scores, tags = net(draw(3, 6, 4)), draw.classes(5, 3, 6)
        alpha = torch.zeros(3, 6, 5)
        alpha[:, 0] = scores[:, 0]
        for t in range(1, 6):
            before = alpha[:, t - 1].clone().unsqueeze(2)
            alpha[:, t] = torch.logsumexp(before + transitions, dim=1) + scores[:, t]
        gold = scores.gather(2, tags[..., None]).squeeze(-1).sum(1)
        gold = gold + transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        loss = (alpha[:, -1].logsumexp(1) - gold).mean()
        update(optimizer, loss)
        yield loss, alpha, transitions, net


@program(varies="where a row is written depends on the values")
def elimination_with_swapped_rows(torch, draw):
    while True:
        rows = torch.cat([draw(4, 4), draw(4, 1)], 1)
        for i in range(4):
            pivot = int(rows[i:, i].abs().argmax()) + i
            if pivot != i:
                rows[[i, pivot]] = rows[[pivot, i]]
            rows[i] /= rows[i, i].clone()
            for j in range(4):
                if j != i:
                    rows[j] -= rows[j, i].clone() * rows[i]
        yield rows[:, -1], rows


@program(varies="where an entry is written depends on the values")
def knapsack_and_edit_distance(torch, draw):
    """Entries that are compared one by one, by Python's `if` and `min`."""
    while True:
        weights, values = (draw.classes(4, 4) + 1).tolist(), draw.uniform(4)
        best = torch.zeros(9)
        for weight, value in zip(weights, values):
            for room in range(8, weight - 1, -1):
                if best[room - weight] + value > best[room]:
                    best[room] = best[room - weight] + value
        a, b = draw.classes(3, 4), draw.classes(3, 5)
        table = torch.zeros(5, 6, dtype=torch.long)
        table[:, 0], table[0, :] = torch.arange(5), torch.arange(6)
        for i in range(1, 5):
            for j in range(1, 6):
                new = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
                table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, new)
        yield best, table, table[-1, -1].item()

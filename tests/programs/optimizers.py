"""Optimizers that users write: lists of tensors at once, states of all kinds, and what is saved of
them."""

from __future__ import annotations

import copy

from . import program


def _made(torch):
    class Adaptive(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1, momentum=0.9):
            super().__init__(params, {"lr": lr, "momentum": momentum})

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                grads = [p.grad for p in params]
                for p in params:
                    state = self.state[p]
                    if not state:
                        state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                        state["step"], state["count"] = torch.tensor(0.0), 0
                    state["step"] += 1
                    state["count"] += 1
                means = [self.state[p]["mean"] for p in params]
                squares = [self.state[p]["square"] for p in params]
                torch._foreach_mul_(means, group["momentum"])
                torch._foreach_add_(means, grads, alpha=1 - group["momentum"])
                torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 0.01)
                scales = torch._foreach_sqrt(squares)
                torch._foreach_add_(scales, 1e-3)
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
                torch._foreach_mul_(means, (1.0 / (norm + 1e-6)).clamp(max=1.0))
                torch._foreach_addcdiv_(params, means, scales, -group["lr"])
            return loss

    return Adaptive


def _told(state):
    """The entries of each state in their order, with their kinds."""
    return [[(k, type(v).__name__, v) for k, v in s.items()] for s in state.values()]


@program
def optimizer_over_lists_of_tensors(torch, draw):
    model = draw.mlp(3, 5, 2)
    optimizer = _made(torch)(model.parameters())
    while True:
        x = draw(4, 3)

        def closure(x=x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        yield optimizer.step(closure), model, _told(optimizer.state_dict()["state"])


@program
def optimizer_loaded_amid_training(torch, draw):
    """Step counts that are numbers stay numbers, those that are tensors stay tensors."""

    class Counted(_made(torch)):
        @torch.no_grad()
        def step(self):
            super().step()
            for state in self.state.values():
                state["step"] = state["count"] * 2

    model = draw.mlp(3, 5, 2)
    kinds = (_made(torch), Counted)
    optimizers = [kind(model.parameters(), lr=0.05) for kind in kinds]
    while True:
        for i, kind in enumerate(kinds):
            optimizer = optimizers[i]
            optimizer.zero_grad()
            model(draw(4, 3)).square().mean().backward()
            optimizer.step()
            saved = copy.deepcopy(optimizer.state_dict())
            optimizers[i] = kind(model.parameters(), lr=1.0)
            optimizers[i].load_state_dict(saved)
        yield model, [_told(o.state_dict()["state"]) for o in optimizers]

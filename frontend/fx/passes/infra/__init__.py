"""torch.fx.passes.infra: what passes share."""

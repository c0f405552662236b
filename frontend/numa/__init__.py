"""torch.numa: where processes run on machines with several memories."""

"""`import torch` that gives tilewright: for one program (`tilewright run`), or for an environment
(`tilewright as-torch install`)."""

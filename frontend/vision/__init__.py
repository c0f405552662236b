"""What the compiled part of torchvision computes, as operators of tilewright.

torchvision's own Python calls them: `torch.ops.load_library` defines them when it is asked for
torchvision's libraries.
"""

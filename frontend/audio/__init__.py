"""What the compiled part of torchaudio computes, as operators of tilewright.

torchaudio's own Python calls them: `torch.ops.load_library` defines them when it is asked for
torchaudio's libraries.
"""

"""Checkpoints from anywhere: what `torch.save` wrote is read without running or trusting it.

`torch.load(weights_only=True)` runs no foreign code, but it does everything else that a pickle
asks for: a few hundred bytes can make it allocate gigabytes, or hash one key for centuries. So
`torch_pickles` first walks through each pickle without executing it, and `torch_files` lets torch
read only files that passed. Running torch.load in a child process with limits is slower (seconds,
to import torch) and less strict (it accepts a third of the hostile files in our tests).
"""

from smoothmix._io.untrusted.torch_files import load_plain

__all__ = ["load_plain"]

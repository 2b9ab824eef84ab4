"""Facts of this machine: CPU, GPUs, memory, software, and whether it is fit to be measured.

Standard library and a few small packages only; imports nothing of harness or frameworks.
"""

"""Element-wise passes over arrays, a module a backend. Imports problems, reference and registry, and what operations share."""

# Those among the kernels here that are rungs, for stored rows that do not tell it. A new one says @kernel(rung=True) alone.
RUNGS = ("tensorflow/dataset", "tensorflow/graph", "tensorflow/pooled")

"""Element-wise passes over arrays, a module a backend. Imports problems, reference and registry, and what operations share."""

# Kernels that are run only when asked for by name or with --ladder, and that stand for no side of a comparison.
RUNGS = (
    "tensorflow/dataset",
    "tensorflow/fused",
    "tensorflow/fused_jit",
    "tensorflow/graph",
    "tensorflow/pooled",
)

"""The kernels that execute a training step: one for each operation (op by op), or as XLA fuses them (compiled).

Read in this order: step_kernel, operation_counts, fusion (tables of layers), traced_runs, traced_kernel, traced_fusion.
"""

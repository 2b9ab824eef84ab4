"""Times of a training predicted from a machine's microbenchmarks, part by part, with their errors; imports every room below.

Read in this order: profile, operations, step_kernels, step_work, components, combine, calibration, prediction.
"""

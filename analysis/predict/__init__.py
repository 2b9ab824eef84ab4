"""Times of a training predicted from a machine's microbenchmarks, part by part, with their errors; imports every room below.

Read in this order: profile, products, passes, step_kernels, step_work, host_parts, components, step_parts, step_time,
calibration, prediction.
"""

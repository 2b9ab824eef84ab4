"""A layer by itself: its forward pass and gradients as graphs of their own, chained and timed. All but `description` and `inputs`
runs in workers."""

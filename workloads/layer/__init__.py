"""The command `workloads.layer`: each layer of a model timed by itself. It imports what commands share."""

"""The command lines: problems x kernels on this machine, into result files."""

"""What kernels on CPUs share: vector and tile instructions, operands packed for them. Imports the problems alone."""

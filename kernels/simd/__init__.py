"""What kernels on CPUs share: vector and tile instructions, packed operands, products of matrices. Imports the problems alone."""

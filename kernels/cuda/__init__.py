"""What kernels on NVIDIA GPUs share: loader, autotuner, tile configurations, texts in include. Imports the problems alone."""

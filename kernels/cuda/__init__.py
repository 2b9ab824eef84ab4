"""Shared by the NVIDIA GPU kernels: loader, autotuner, tile configurations, headers in include. Imports the problems alone."""

"""Runs rows in worker processes and takes their samples: plan, sweep, worker, clocks, caches, telemetry.

Imports the ground and `kernels`; the functions of frameworks are called by name through `dispatch`.
"""

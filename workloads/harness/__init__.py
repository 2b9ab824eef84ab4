"""Runs rows in worker processes and takes their samples: plan, sweep, worker, clocks, caches, telemetry.

Imports the ground and `kernels`; what frameworks do is found by name through `handlers`.
"""

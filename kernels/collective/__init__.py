"""Sums over several GPUs of a host, a module a backend. Imports problems and registry, and what operations share."""

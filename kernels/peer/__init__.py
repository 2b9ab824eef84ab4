"""Copies from GPU to GPU of a host, a module a backend. Imports problems and registry, and what operations share."""

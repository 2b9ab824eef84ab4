"""Copies between host and device, a module a backend. Imports problems and registry, and what operations share."""

"""Calls that do nearly nothing, a module a backend. Imports problems and registry, and what operations share."""

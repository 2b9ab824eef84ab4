"""Multiply-adds in registers, a module a backend. Imports problems and registry, and what operations share."""

"""Shared by the operations that run in TensorFlow; imported when a kernel is bound. Imports problems, reference, registry."""

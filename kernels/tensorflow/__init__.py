"""What operations share when they run in TensorFlow, imported when a kernel is bound. Imports problems, reference, registry."""

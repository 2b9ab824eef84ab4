"""What several operations share when they run in TensorFlow. Imports problems, reference and registry.

TensorFlow is imported when a kernel is bound, which happens in a worker.
"""

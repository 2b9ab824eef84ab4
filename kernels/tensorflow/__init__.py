"""What several operations share when they run in TensorFlow. Imports problems, reference and registry."""

"""Rows that TensorFlow, Keras or JAX run: models, data, input pipelines, trainers and inference.

Imports the harness and the ground; Keras and TensorFlow are imported in worker processes only.
"""

"""What TensorFlow, Keras and JAX do for a row: models, data, input pipelines, trainers and inference.

Imports the harness and the ground; Keras and TensorFlow are imported in worker processes only.
"""

"""A Keras model as the operations of its traced training step. Runs in a child process with TensorFlow; nothing is trained."""

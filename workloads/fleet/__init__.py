"""The suite on every node of a Ray cluster, its files copied into one folder a node.

Imports the suite, which runs on each node.
"""

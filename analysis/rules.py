"""The rules by which a step's parts are counted and come together, each with a name, so that an ablation can leave one out."""

RULE_WORDS = {
    "first dgrad": "no gradient by the images for the first layer",
    "inside": "rows of operations inside a graph, and what a call takes more than these taken off the others (CPU)",
    "remapped": "bias and activation in their product's kernel where TensorFlow's optimizer puts them there (CPU)",
    "fused": "element-wise passes fused as XLA does where it compiles",
    "element-wise": "biases, activations, pooling, dropout and loss counted",
    "optimizer": "the optimizer's passes counted",
    "operations": "a dispatch for each operation of a graph that is not compiled, a launch for each kernel of one that is",
    "cold": "passes and products at the memory's bandwidth where the step's arrays are larger than the last cache",
    "chain": "operations of a graph on the CPU that do not wait for each other run at once",
    "inline": "short operations dispatched by the thread that finds them ready, long ones by others meanwhile (CPU)",
    "copies": "the batch copied to the GPU",
    "pipeline": "the input pipeline gathers the batch meanwhile",
    "at once": "host, device and input pipeline work at the same time",
    "calibrated": "the global numbers fitted on other models' trainings",
}
RULES = frozenset(RULE_WORDS)

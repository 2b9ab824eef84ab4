"""Says what a Keras model is made of, layer by layer: shapes, weights, FLOPs, and which layers nothing here can price."""

import sys
from argparse import Namespace
from collections import Counter

from analysis.table import Table
from workloads import options

QUESTION = "What is a model made of, layer by layer?"
EXAMPLES = "python -m workloads.describe --model cifar10-cnn", "python -m workloads.describe --model file.py:function"
LONG = """Builds a Keras model in a process of its own and says what it is made of: layers with their shapes, weights and FLOPs a
sample in a training step, and which of them are not known, so that what they take can only be estimated."""
TIME_LIMIT_S = 60
FLAGS = f"""
--model NAME =cifar10-cnn  a name, file.py:function or file.keras (cifar10-cnn)
--time-limit S ={TIME_LIMIT_S}  seconds that building may take, TensorFlow's import among them ({TIME_LIMIT_S})
--format {{table,json}} =table  what stdout gets (table)"""


def parser() -> options.Parser:
    """The command line of python -m workloads.describe."""
    return options.parser("workloads.describe", LONG, *EXAMPLES, question=QUESTION, needs="model", flags=FLAGS)


def lines(of) -> list[str]:
    """A Network as text: a line a layer, its sums, and what is not known of it."""
    from kernels import networks
    from kernels.networks import layers
    from kernels.networks import training_step as steps

    flops = Counter[str]()
    for work in steps.step(of, 1):
        flops[work.layer.removesuffix(steps.SECOND)] += work.flops
    strange = layers.unknown(of)
    rows = []
    for layer, shape, weights in zip(of.layers, networks.outputs(of), networks.layer_weights(of), strict=True):
        kind = layer.kind + (" (not known)" if layer in strange else "") + ("" if layer.trainable else " (frozen)")
        rows.append((layer.name, kind, layers.words(shape), f"{weights:,}", f"{flops[layer.name]:,}"))
    found = Table("layer | kind | output | weights | training FLOPs a sample", rows, 2).text()
    found.append(
        f"{networks.parameters(of):,} weights, {networks.trainable(of):,} of them learned; "
        f"{flops.total():,} FLOPs a sample and training step, with {of.optimizer} and {of.loss}"
    )
    if strange:
        names = ", ".join(f"{layer.name} ({layer.kind})" for layer in strange)
        found.append(f"not known: {names}; what they take is estimated from their weights and the bytes they move")
    return found


def _body(args: Namespace) -> int:
    from workloads.frameworks import grid

    if args.format == "json":
        return _print_json(args.model, args.time_limit)
    print("\n".join(lines(grid.network(args.model, args.time_limit))))
    return options.OK


def _print_json(model: str, time_limit_s: float) -> int:
    """Prints one JSON object for whoever started this process: the Network, or a messages.Failed."""
    import msgspec

    from workloads.frameworks import grid
    from workloads.records.messages import Failed, failure

    try:
        network = grid.network(model, time_limit_s)
    except Exception as error:
        print(msgspec.json.encode(Failed(error=failure(error))).decode())
        raise
    print(msgspec.json.encode(network).decode())
    return options.OK


main = options.entry(parser, _body)


if __name__ == "__main__":
    sys.exit(main())

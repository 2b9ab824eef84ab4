"""Says what a Keras model is made of, layer by layer: shapes, weights, FLOPs, and which layers nothing here can price."""

import sys
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import units
from analysis.table import Table
from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.networks import Network
    from kernels.networks.operations import Operation, TracedStep
    from workloads.records.script_fit import DescribedScript

QUESTION = "What is a model made of, layer by layer?"
EXAMPLES = (
    "python -m workloads.describe --model cifar10-cnn",
    "python -m workloads.describe --model file.py:function --operations",
    "python -m workloads.describe --script train.py -- --lr 0.1",
)
LONG = """Builds a Keras model in a process of its own and says what it is made of: layers with their shapes, weights and FLOPs a
sample in a training step, and which of them are not known, so that what they take can only be estimated. With --operations,
any compiled model: the operations of its training step, as TensorFlow traces it, with their FLOPs and bytes. With --script, a
training script as it is: it runs up to its first fit, and the words after -- are its arguments."""
TIME_LIMIT_S = 60
BATCH = 32


def parser() -> CommandParser:
    """The command line of python -m workloads.describe."""
    command_parser = CommandParser(
        module="workloads.describe",
        description=LONG,
        examples=EXAMPLES,
        question=QUESTION,
        brief_flags=("--model", "--script"),
        passes_on=True,
    )
    command_parser.add_argument(
        "--model", metavar="NAME", default="cifar10-cnn", help="a name, file.py:function or file.keras (cifar10-cnn)"
    )
    command_parser.add_argument(
        "--script",
        metavar="FILE",
        help=help_screen.help_text(
            "a training script (train.py, train.ipynb, package.train), in place of --model",
            rest="; words after -- are its arguments",
        ),
    )
    command_parser.add_argument(
        "--fit",
        metavar="PLACE",
        help="of --script: the line of another fit than the first, or 3.2: line 2 of a notebook's third code cell",
    )
    command_parser.add_argument(
        "--operations", action="store_true", help="the operations of the training step, from its trace"
    )
    command_parser.add_argument(
        "--batch", metavar="N", type=options.number, help=f"of --operations: samples in a batch ({BATCH})"
    )
    command_parser.add_argument(
        "--data",
        metavar="NAME",
        help="of --operations: file.py:function that gives (x, y), a tf.data.Dataset, a PyDataset or a generator",
    )
    command_parser.add_argument(
        "--length",
        metavar="N",
        type=options.number,
        help="of --operations: the length of open sizes, such as words in a text",
    )
    command_parser.add_argument(
        "--time-limit",
        metavar="S",
        type=options.positive,
        default=str(TIME_LIMIT_S),
        help=f"seconds that building may take, TensorFlow's import among them ({TIME_LIMIT_S})",
    )
    command_parser.add_argument("--format", choices=("table", "json"), default="table", help="what stdout gets (table)")
    return command_parser


class DescribePlan(NamedTuple):  # msgspec may not be installed when this module is imported
    """What to describe of which model."""

    #: A name, file.py:function or file.keras.
    model: str
    #: A training script that is described in place of a model; "" for none.
    script: str
    #: The arguments of that script.
    script_arguments: tuple[str, ...]
    #: Where the fit stands that is described; "" for its first.
    script_fit: str
    #: Whether to describe the operations of its training step.
    operations: bool
    #: Samples in a batch of that step.
    batch: int
    #: file.py:function that gives the data of that step; "" for made-up samples.
    data: str
    #: The length of open sizes, such as words in a text, in that step; 0 where the flag is not typed.
    length: int
    #: Seconds that building may take.
    time_limit_s: float
    #: What stdout gets: table or json.
    format: str

    @classmethod
    def from_flags(cls, flags: Namespace) -> "DescribePlan":
        """The plan of the typed flags.

        Raises: Usage for flags of --operations without it, arguments of a script without one, and data of no function.
        """
        from workloads.records import model_files, script_files

        if flags.script:
            script_files.require(flags.script)
        if flags.script and flags.operations:
            raise options.Usage("--operations is for --model; leave it out", wrong="--operations")
        if flags.passed_on and not flags.script:
            raise options.Usage("words after -- are for a script: name it with --script")
        if flags.fit and not flags.script:
            raise options.Usage("--fit is for --script, which is not asked for", right="--script train.py")
        for name in ("batch", "data", "length"):
            if getattr(flags, name) and not flags.operations:
                raise options.Usage(f"--{name} is for --operations, which is not asked for", right="--operations")
        if flags.data:
            model_files.require(flags.data)
        return cls(
            model=flags.model,
            script=flags.script or "",
            script_arguments=flags.passed_on,
            script_fit=flags.fit or "",
            operations=flags.operations,
            batch=flags.batch or BATCH,
            data=flags.data or "",
            length=flags.length or 0,
            time_limit_s=flags.time_limit,
            format=flags.format,
        )


def lines(network: "Network") -> list[str]:
    """A model as text: a line for each layer with its output, weights and FLOPs, the sums, and what is not known of it."""
    from kernels import networks
    from kernels.networks import layers, training_step

    flops = Counter[str]()  # of a sample's training step, by layer
    for work in training_step.step(network, 1):
        flops[work.layer] += work.flops
    unknown = layers.unknown(network)
    rows = []
    shapes = networks.outputs(network)
    weights = networks.layer_weights(network)
    for layer, shape, count in zip(network.layers, shapes, weights, strict=True):
        kind = layer.kind
        if layer in unknown:
            kind += " (not known)"
        if not layer.trainable:
            kind += " (frozen)"
        rows.append((layer.name, kind, layers.words(shape), f"{count:,}", f"{flops[layer.name]:,}"))
    text = Table("layer | kind | output | weights | training FLOPs a sample", rows, 2).text()
    text.append(
        f"{networks.parameters(network):,} weights, {networks.trainable(network):,} of them learned; "
        f"{flops.total():,} FLOPs a sample and training step, with {network.optimizer} and {network.loss}"
    )
    if unknown:
        names = ", ".join(f"{layer.name} ({layer.kind})" for layer in unknown)
        text.append(f"not known: {names}; what they take is estimated from their weights and the bytes they move")
    return text


def operation_sums(operations: "Sequence[Operation]", batch: int) -> list[str]:
    """Four texts for some operations of a training step: how many there are, how often they run, their FLOPs and the bytes
    that they move in a step of this batch."""
    runs = sum(operation.runs.at(batch) for operation in operations)
    flops = sum(operation.step_flops(batch) for operation in operations)
    nbytes = sum(operation.step_bytes(batch) for operation in operations)
    return [f"{number:,}" for number in (len(operations), runs, flops, nbytes)]


def operation_lines(step: "TracedStep") -> list[str]:
    """A training step as text: a line for each layer, phase (forward, backward ...) and kind of operation, the sums of each kind,
    and what is not sure."""
    if step.untraced:
        return [f"{step.model}: {step.untraced}, so that its operations are not known"]
    by_layer: dict[tuple[str, str, str], list[Operation]] = {}
    by_kind: dict[str, list[Operation]] = {}
    for operation in step.operations:
        by_kind.setdefault(operation.kind, []).append(operation)
        if operation.kind != "view":
            key = (operation.layer or "(no layer)", operation.phase, operation.kind)
            by_layer.setdefault(key, []).append(operation)
    heads = "operations | runs | FLOPs | bytes"
    rows = [(*key, *operation_sums(group, step.batch)) for key, group in by_layer.items()]
    text = Table(f"layer | phase | kind | {heads}", rows, 3).text()
    sums = [(kind, *operation_sums(by_kind[kind], step.batch)) for kind in sorted(by_kind)]
    text += ["", *Table(f"kind | {heads}", sums).text(), ""]
    text.append(f"{step.model}, a step of {units.count(step.batch, 'sample')}: {step.step_flops(step.batch):,} FLOPs")
    fixed = sum(not operation.scales for operation in step.operations)
    if fixed:
        text.append(f"{fixed:,} operations do not grow evenly with the batch: their numbers are those of this batch")
    doubts = Counter(operation.doubt for operation in step.operations if operation.doubt)
    text += [f"not sure: {doubt} ({count:,} operations)" for doubt, count in doubts.items()]
    return text + [f"assumed: {doubt}" for doubt in step.doubts]


def script_lines(described: "DescribedScript") -> list[str]:
    """A script as text: its call of fit with samples, batch and epochs, then the operations of a training step of its model."""
    fit = described.fit
    samples = "unknown samples" if fit.samples is None else units.count(fit.samples, "sample")
    head = f"{fit.head}: {samples}, batch {fit.batch:,}, {units.count(fit.epochs, 'epoch')}"
    assert described.network.traced is not None
    return [head, "", *operation_lines(described.network.traced)]


def _described(plan: DescribePlan) -> "DescribedScript | Network":
    """What the plan asks for: a script's fit with its model, or a model with its layers, traced if --operations was typed.

    Raises: Usage for what cannot be built or run; Missing without TensorFlow.
    """
    from workloads.frameworks import grid
    from workloads.frameworks.tracing import request
    from workloads.frameworks.user_fit import script

    if plan.script:
        return script.described(plan.script, plan.script_arguments, plan.time_limit_s, fit=plan.script_fit)
    if not plan.operations:
        return grid.network(plan.model, plan.time_limit_s)
    wanted = request.TraceRequest(model=plan.model, batch=plan.batch, data=plan.data, length=plan.length)
    return request.traced_network(wanted, plan.time_limit_s)


def carry_out(plan: DescribePlan) -> int:
    """Prints the description. Returns the exit code."""
    if plan.format == "json":
        return _print_json(plan)
    described: Any = _described(plan)
    if plan.script:
        shown = script_lines(described)
    elif plan.operations:
        shown = operation_lines(described.traced)
    else:
        shown = lines(described)
    print(*map(terminal.on_one_line, shown), sep="\n")
    return options.OK


def _print_json(plan: DescribePlan) -> int:
    """Prints one JSON object: the description, or a messages.Failed with the error, which the process that started this one
    raises.
    """
    import msgspec

    from workloads.records.messages import Failed, failure

    try:
        record = _described(plan)
    except Exception as error:
        print(msgspec.json.encode(Failed(error=failure(error))).decode())
        raise
    print(msgspec.json.encode(record).decode())
    return options.OK


def require_model(plan: DescribePlan) -> None:
    """Raises Usage for a model that is not known: no name of ours, no file or function. It is not built, which takes seconds."""
    from workloads.frameworks import grid

    if not plan.script:
        grid.known_model(plan.model)


main = running.main_function(parser, make_plan=DescribePlan.from_flags, carry_out=carry_out, check=require_model)


if __name__ == "__main__":
    sys.exit(main())

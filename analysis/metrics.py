"""METRICS: every number that a row can have, with its unit and meaning. Standard library only, so that --help can show it."""

from typing import Literal, NamedTuple

from workloads import terminal


class Metric(NamedTuple):  # msgspec may not be installed when a command's --help imports this module
    """A number stored in a row, or a column of the table that is derived from rows."""

    #: Its name in a row, or that of the column in csv and json.
    key: str
    #: The head of its column in tables for people.
    name: str
    #: `s`, `byte`, `Hz`, `W`, `J`, `FLOP` or of them a second; `1` for a share or ratio, `0/1` for no or yes, `count` for a
    #: whole number, `text` for words.
    unit: str
    #: Which of two values is better: `lower`, `higher`, or `-` where neither is.
    better: Literal["lower", "higher", "-"]
    #: What it is, in one line.
    help: str


# Numbers in a row's `values`.
_VALUES = (
    # Watched while the row was timed.
    Metric(key="cpu_clock_hz", name="CPU clock", unit="Hz", better="higher", help="median clock of the CPU"),
    Metric(
        key="steal_fraction",
        name="steal",
        unit="1",
        better="lower",
        help="CPU time that the hypervisor took, of the time at work or taken",
    ),
    Metric(
        key="throttled_s",
        name="throttled",
        unit="s",
        better="lower",
        help="time that a cgroup's CPU quota held the process back",
    ),
    Metric(
        key="other_load_fraction",
        name="other load",
        unit="1",
        better="lower",
        help="CPU time of other processes, of all usable CPUs",
    ),
    Metric(
        key="gpu_clock_hz",
        name="GPU clock",
        unit="Hz",
        better="higher",
        help="median clock of the GPU's multiprocessors",
    ),
    Metric(
        key="input_step_s",
        name="data alone",
        unit="s",
        better="lower",
        help="a batch of a user's data, without training",
    ),
    Metric(
        key="chain_s",
        name="chain",
        unit="s",
        better="lower",
        help="a call of a layer's chain with additions of single numbers in its place",
    ),
    Metric(
        key="chain_copies",
        name="copies",
        unit="count",
        better="higher",
        help="copies of weights, saved activations and results that the calls of a layer's chain take turns with",
    ),
    Metric(key="gpu_power_w", name="GPU power", unit="W", better="lower", help="highest power of the GPU"),
    Metric(
        key="pcie_generation",
        name="PCIe generation",
        unit="count",
        better="higher",
        help="highest generation of the GPU's link, of rows that copy",
    ),
    Metric(
        key="pcie_width", name="PCIe lanes", unit="count", better="higher", help="highest number of lanes of that link"
    ),
    # Trainings and inference.
    Metric(key="parameters", name="parameters", unit="count", better="-", help="numbers in the model's weights"),
    Metric(key="jit_compile", name="jit", unit="0/1", better="-", help="whether XLA compiled the model"),
    Metric(key="tf32", name="TF32", unit="0/1", better="-", help="whether float32 products were computed in TF32"),
    Metric(key="threads", name="threads", unit="count", better="-", help="CPU threads of a training on the CPU"),
    Metric(
        key="peak_memory_bytes",
        name="peak memory",
        unit="byte",
        better="lower",
        help="most memory: of the process on the CPU, of the framework's tensors on a GPU",
    ),
    Metric(
        key="final_loss",
        name="last loss",
        unit="1",
        better="lower",
        help="last epoch's loss: of a short fit from the first weights, of a trial's whole fit",
    ),
    Metric(
        key="joules_per_sample",
        name="J a sample",
        unit="J",
        better="lower",
        help="energy of the answer to one sample, idle power included",
    ),
    Metric(key="watts", name="power", unit="W", better="lower", help="mean power while answering, idle power included"),
    Metric(
        key="first_epoch_s",
        name="first epoch",
        unit="s",
        better="lower",
        help="first epoch, compilation included; stored until 2026-11-22",
    ),
    Metric(
        key="trace_step_s",
        name="step in the trace",
        unit="s",
        better="lower",
        help="step as TensorFlow's profiler counts it; stored until 2026-11-22",
    ),
    Metric(
        key="traced_step_s",
        name="traced step",
        unit="s",
        better="lower",
        help="step while TensorFlow's profiler ran; stored until 2026-11-22",
    ),
    # Trainings on several GPUs.
    Metric(key="replicas", name="GPUs", unit="count", better="-", help="devices that share a batch"),
    Metric(
        key="replica_batch",
        name="batch a GPU",
        unit="count",
        better="-",
        help="samples of a batch on each of these devices",
    ),
    Metric(
        key="all_reduce_bytes",
        name="gradients",
        unit="byte",
        better="-",
        help="gradients of one device, which a step sums over all devices",
    ),
    Metric(key="all_reduce_s", name="all-reduce", unit="s", better="lower", help="median time of that sum by itself"),
    Metric(
        key="step_state_bytes",
        name="weights and optimizer",
        unit="byte",
        better="lower",
        help="weights, optimizer's slots and part of the batch on each device",
    ),
    Metric(
        key="step_temporary_bytes",
        name="activations",
        unit="byte",
        better="lower",
        help="activations and gradients on each device",
    ),
    # Trials in one process, and several trainings at once.
    Metric(
        key="total_s", name="all trials", unit="s", better="lower", help="all trials together, process starts included"
    ),
    Metric(key="trials", name="trials", unit="count", better="-", help="trainings one after the other"),
    Metric(key="traces", name="traces", unit="count", better="lower", help="times that TensorFlow traced the step"),
    Metric(
        key="functions",
        name="functions",
        unit="count",
        better="lower",
        help="graph functions that TensorFlow holds after a trial",
    ),
    Metric(
        key="rss_bytes", name="memory", unit="byte", better="lower", help="resident memory of the process after a trial"
    ),
    Metric(
        key="steps",
        name="steps",
        unit="count",
        better="-",
        help="steps or batches of a unit of work that is timed while others run",
    ),
)

# Seconds of what happens once, in a row's `phases_s`.
_PHASES = (
    Metric(
        key="import", name="import", unit="s", better="lower", help="importing the libraries, in a process's first row"
    ),
    Metric(
        key="device_start",
        name="device start",
        unit="s",
        better="lower",
        help="starting the device, in a process's first row",
    ),
    Metric(key="samples", name="samples", unit="s", better="lower", help="loading or making the samples of a training"),
    Metric(key="data", name="samples", unit="s", better="lower", help="loading or making the samples of a trial"),
    Metric(key="clear", name="clear", unit="s", better="lower", help="clearing Keras's session before a trial"),
    Metric(key="build", name="build", unit="s", better="lower", help="building the model"),
    Metric(key="compile", name="compile", unit="s", better="lower", help="first fit of a training, less a warm one"),
    Metric(
        key="compile_last",
        name="compile last",
        unit="s",
        better="lower",
        help="compiling again for a smaller last batch",
    ),
    Metric(
        key="look",
        name="look",
        unit="s",
        better="lower",
        help="short fits that say how many steps to time, and the losses",
    ),
    Metric(key="fits", name="fits", unit="s", better="lower", help="all timed fits"),
    Metric(
        key="first_call", name="first call", unit="s", better="lower", help="first call or fit, compilation included"
    ),
)

# Columns of csv, json, `load()` and `run()`, after the row's kernel and its problem's fields.
_COLUMNS = (
    Metric(key="dtype", name="type", unit="text", better="-", help="type of the operands"),
    Metric(key="math", name="math", unit="text", better="-", help="arithmetic that products are computed in"),
    Metric(
        key="mode",
        name="mode",
        unit="text",
        better="-",
        help="where the data are: resident on the device, or copied in each call (roundtrip...)",
    ),
    Metric(key="reuse", name="reuse", unit="count", better="-", help="calls that use a copy"),
    Metric(key="device", name="device", unit="text", better="-", help="cpu, gpu:0, ..."),
    Metric(
        key="threads", name="threads", unit="count", better="-", help="of the CPU; absent: as many as the library takes"
    ),
    Metric(key="cache", name="caches", unit="text", better="-", help="warm, or cold"),
    Metric(
        key="switches",
        name="options",
        unit="text",
        better="-",
        help="a framework's options that are not their default, name=text",
    ),
    Metric(key="median_s", name="time", unit="s", better="lower", help="host latency: a call that is waited for"),
    Metric(
        key="low_s", name="low", unit="s", better="lower", help="the lower end of its 95 % interval within this run"
    ),
    Metric(key="high_s", name="high", unit="s", better="lower", help="the upper end"),
    Metric(key="device_median_s", name="device time", unit="s", better="lower", help="a call on the GPU's clock"),
    Metric(
        key="throughput_median_s",
        name="queued",
        unit="s",
        better="lower",
        help="host throughput: one of many queued calls",
    ),
    Metric(
        key="first_call_s",
        name="first call",
        unit="s",
        better="lower",
        help="the first call, what it compiles included",
    ),
    Metric(key="flops", name="FLOP", unit="FLOP", better="-", help="of a call"),
    Metric(
        key="bytes_moved",
        name="bytes",
        unit="byte",
        better="-",
        help="of a call, each input read once and each output written once",
    ),
    Metric(
        key="flops_per_s",
        name="rate",
        unit="FLOP/s",
        better="higher",
        help="by the GPU's clock where there is one, else by host latency",
    ),
    Metric(key="bytes_per_s", name="rate", unit="byte/s", better="higher", help="the same of bytes"),
    Metric(
        key="roof_fraction",
        name="of its roof",
        unit="1",
        better="higher",
        help="of the rate that the measured roofs allow",
    ),
    Metric(key="joules_per_sample", name="J a sample", unit="J", better="lower", help="energy of an answer"),
    Metric(key="noise", name="±", unit="1", better="lower", help="half the interval's width over median_s"),
    Metric(key="status", name="status", unit="text", better="-", help="ok, skipped, failed, wrong"),
    Metric(key="reason", name="reason", unit="text", better="-", help="why it is not ok"),
    Metric(
        key="flags",
        name="flags",
        unit="text",
        better="-",
        help="what makes the numbers doubtful, above-roof among them",
    ),
)

# Columns of two runs compared row by row.
_COMPARED = (
    Metric(key="row", name="row", unit="text", better="-", help="kernel, problem and settings"),
    Metric(key="clock", name="clock", unit="text", better="-", help="the clock whose samples are compared"),
    Metric(key="old_s", name="before", unit="s", better="lower", help="a call in OLD"),
    Metric(key="new_s", name="now", unit="s", better="lower", help="a call in NEW"),
    Metric(key="ratio", name="ratio", unit="1", better="lower", help="new_s over old_s"),
    Metric(
        key="low",
        name="low",
        unit="1",
        better="lower",
        help="the lower end of its 95 % interval, what equal runs differ by included",
    ),
    Metric(key="high", name="high", unit="1", better="lower", help="the upper end"),
    Metric(key="verdict", name="verdict", unit="text", better="-", help="slower, faster, same, can't tell"),
    Metric(
        key="between_runs",
        name="between runs",
        unit="1",
        better="lower",
        help="the difference that 95 of 100 pairs of equal runs stay within",
    ),
    Metric(key="between_from", name="from", unit="text", better="-", help="where that is from"),
    Metric(
        key="smallest_slowdown",
        name="smallest slowdown",
        unit="1",
        better="lower",
        help="the smallest that would have been called slower; absent: none would",
    ),
    Metric(key="flags", name="flags", unit="text", better="-", help="what makes the numbers of either row doubtful"),
)

METRICS = (*_VALUES, *_PHASES, *_COLUMNS, *_COMPARED)
VALUES = {metric.key: metric for metric in _VALUES}
PHASES = {metric.key: metric for metric in _PHASES}
COLUMNS = {metric.key: metric for metric in _COLUMNS}
COMPARED = {metric.key: metric for metric in _COMPARED}


def columns_help(columns: dict[str, Metric]) -> list[terminal.Line]:
    """A line of help for each column: its key, unit, which of two values is better, and what it is."""
    lines = []
    for m in columns.values():
        lines.append(terminal.Line(f"{m.better:<6}  {m.help}", label=f"{m.key:<19}  {m.unit:<6}  "))
    return lines

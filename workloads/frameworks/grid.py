"""Combines models, shapes, ways of training and switches into rows; finds networks by their names."""

import contextlib
import dataclasses
import importlib.util
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from kernels import networks, registry
from kernels.problems import Training
from workloads import options
from workloads.frameworks import input_pipeline, studies
from workloads.frameworks.data_parallel import STRATEGIES
from workloads.harness import plan, worker
from workloads.harness.timing import Limits
from workloads.records import Row, Settings, distinct, model_files, settings
from workloads.records.settings import KNOWN

MODEL, BATCH = "cifar10-cnn", 32
_KINDS = {"conv": "convolutions", "dense": "dense layers"}
# Where the samples live, by variant.
RESIDENCES = {"fit": input_pipeline.RESIDENCES, "resident": ("resident",), "loop": ("resident", "fed")}
VARIANTS = tuple(RESIDENCES)
BACKENDS = ("keras", "tensorflow", "jax")
KERNELS = {studies.FIT: "fit", studies.RESIDENT: "resident", **dict.fromkeys(studies.LOOPS, "loop")}  # -> its variant
# Switches that change nothing there: of a device, and of a way of training.
_ON = {"tf32": "gpu", "TF_ENABLE_ONEDNN_OPTS": "cpu"}
_FIT_ALONE = ("steps_per_execution", "keras_backend", "replicas")
_NOT_JAX = ("jit_compile", "precision")  # its loop is always compiled, in float32
_MLP = {"inputs": 784, "width": 500, "depth": 2, "outputs": 10}
_ONLY_OF = {**dict.fromkeys(_MLP, "mlp"), "hidden_layers": "fashion-mlp"}
# A flag of one model -> that of another model for the same, and this model.
_OTHER_FLAG = {"hidden_layers": {"--depth": "mlp"}, "depth": {"--hidden-layers": "fashion-mlp"}}

Typed = Mapping[str, Sequence[str] | None]  # flag -> its words, None where it was not typed


def models(names: Sequence[str], sizes: Typed) -> list[str]:
    """The models that the words of --model name, by the names that rows have.

    `mlp` and `fashion-mlp` stand for families: sizes has the flags for their widths and numbers of layers, and every combination
    is a model, as `mlp-784-500x2-10`.
    Raises: Usage for an unknown model, and for flags of a family that is not named.
    """
    for flag, model in _ONLY_OF.items():
        words = sizes.get(flag)
        if words and model not in names:
            raise _size_of_another_model(flag, words, names)
    model_names: list[str] = []
    for name in names:
        if name == "mlp":
            counts = [plan.counts(sizes.get(flag), default) for flag, default in _MLP.items()]
            for inputs, width, depth, outputs in itertools.product(*counts):
                model_names.append(known_model(f"mlp-{inputs}-{width}x{depth}-{outputs}"))
        elif name == "fashion-mlp" and sizes.get("hidden_layers"):
            model_names += [known_model(f"fashion-mlp-{layers}") for layers in plan.counts(sizes["hidden_layers"])]
        else:
            model_names.append(known_model(name))
    return list(dict.fromkeys(model_names))


def _size_of_another_model(flag: str, words: Sequence[str], names: Sequence[str]) -> options.Usage:
    """The error for a flag of a family of models that is not named. Where a named family has a flag for the same, it proposes
    that.

    flag: without its dashes, as `hidden_layers`. words: what was typed behind it. names: the words of --model.
    """
    model = _ONLY_OF[flag]
    typed = f"--{'-'.join(flag.split('_'))}"
    for other_flag, other_model in _OTHER_FLAG.get(flag, {}).items():
        if other_model in names:
            message = f"{typed} is for the model {model}; of {other_model} it is {other_flag}"
            return options.Usage(message, wrong=typed, right=shlex.join([other_flag, *words]))
    return options.Usage(f"{typed} is for the model {model}", wrong="--model", right=f"--model {model}")


def known_model(name: str) -> str:
    """The name of a model as rows have it: of a network, or of a user's own model, whose file must be there.

    Raises: Usage for a name of neither.
    """
    if not settings.is_user_model(name):
        return settings.network(name, or_user_model=True).name
    model_files.require(name)
    return name


def network(name: str, time_limit_s: float = 60) -> networks.Network:
    """The Network of this name. A user's own model is built and described in a child process, which may take time_limit_s.

    Raises: Usage for an unknown name and a model that cannot be used; Missing without TensorFlow, and where the model is not
    built in time.
    """
    if not settings.is_user_model(known_model(name)):
        return networks.find(name)
    require_keras()
    problem = Training(name, batch=1, samples=1)  # nothing is trained
    row = Row("training/keras/build", problem, Settings(switches={"data": "synthetic"}))
    with contextlib.closing(worker.Worker(worker.environment(row, {}))) as builder:
        m = builder.ask(worker.Order("measure", row, Limits()), time_limit_s)
    if m.ok:
        return msgspec.json.decode(m.notes["layers"], type=networks.Network)
    if m.cause == "time-limit":
        message = f"{name} cannot be described: building it has {m.reason}"
        raise options.Missing(message, wrong="--time-limit", right=f"--time-limit {5 * time_limit_s:g}")
    message = f"building {name}: {m.reason}" if m.cause == "process-ended" else m.reason
    raise model_files.failing(message, name)


def layers(
    model: str,
    kind: str,
    *,
    directions: Sequence[str],
    batches: Sequence[int],
    precisions: Sequence[tuple[str, str]],
) -> list[networks.Work]:
    """The products of one kind in a training step of a model: batch by batch, layer by layer, and in every precision.

    kind: `conv` or `dense`. directions: of fprop, wgrad and dgrad, the forward pass and the gradients of weights and inputs; the
    first layer has no dgrad, as nothing needs it. precisions: pairs (type of the arrays, arithmetic).
    Raises: Usage for a model that has no such product.
    """
    described = network(model)
    wanted: list[networks.Work] = []
    for batch in batches:
        steps = []  # the products of the step in each precision, in the same order
        for dtype, math in precisions:
            steps.append([work for work in networks.step(described, batch, dtype, math) if work.kind == kind])
        if not steps[0]:
            error = options.Usage(f"{model} has no {_KINDS[kind]}; the command below times the layers that it has")
            error.command = "workloads.matmul" if kind == "conv" else "workloads.conv"
            raise error
        for precisions_of_work in zip(*steps, strict=True):
            wanted += [work for work in precisions_of_work if work.direction in directions]
    if not wanted:
        present = "fprop and wgrad, as only its first layer is one"
        raise options.Usage(f"the {_KINDS[kind]} of {model} have no {' or '.join(directions)}: there are {present}")
    return wanted


def problems(
    names: Iterable[str],
    *,
    data_set: str,
    batches: Sequence[int],
    samples: Sequence[int],
    steps: int | None,
    epochs: Sequence[int],
    dtypes: Sequence[str],
) -> list[Training]:
    """The trainings of these models in every combination of batches, samples, epochs and types of the samples.

    Where batches, samples or epochs are empty, the usual ones are taken; steps: batches of an epoch, where samples are empty. A
    model that its article trains in one batch has all samples in one, unless batches are named. data_set: `synthetic` or `real`.
    Raises: Usage for a model that has no real data, or does not take a type.
    """
    trainings: list[Training] = []
    for model in names:
        network = networks.known(model)  # None for a user's model
        in_one_batch = _trains_in_one_batch(network)
        if data_set == "real" and network and not network.data:
            raise options.Usage(f"{model} has no real data set", wrong="--data")
        if network and network.regression and "uint8" in dtypes:
            why = f"{model} learns from points that are no whole numbers: not as uint8"
            raise options.Usage(why, wrong="--dtypes", right="--dtypes float32")
        if network and in_one_batch and not batches:
            shapes = [(count, count) for count in samples or [network.samples]]
        else:
            shapes = []
            for batch in batches or [BATCH]:
                usual = batch * (steps or studies.short(model, batch).steps)
                shapes += [(batch, count) for count in samples or [usual]]
        usual_epochs = studies.FULL_BATCH_EPOCHS if in_one_batch else 1
        for (batch, count), number, dtype in itertools.product(shapes, epochs or [usual_epochs], dtypes):
            training = Training(model=model, batch=batch, samples=count, epochs=number, dtype=dtype)
            trainings.append(training)
    return trainings


def _trains_in_one_batch(network: networks.Network | None) -> bool:
    """Whether the article of a network trains it on all samples in one batch. None, for a user's model, does not."""
    return network is not None and network.batch == network.samples


def kernels(backends: Sequence[str], variants: Sequence[str]) -> list[str]:
    """The names of the kernels that train, as `training/keras/fit`, of these backends and variants.

    backends: of keras, tensorflow and jax; () for all that are installed. variants: of fit, resident and loop; () for all.
    Raises: Usage for an unknown backend or variant, and where no kernel is of both; Missing for a named library that is not
    installed.
    """
    libraries = plan.known("backend", backends, BACKENDS, " for training") or list(BACKENDS)
    wanted = plan.known("variant", variants, VARIANTS, " for training") or list(VARIANTS)
    if "jax" in libraries and not studies.available("jax"):
        if backends:
            raise options.Missing("jax is not installed", tip=f"{options.python()} -m pip install jax")
        libraries.remove("jax")
    chosen = []
    for library in libraries:
        for kernel, variant in KERNELS.items():
            _, backend, _ = kernel.split("/")  # as training/keras/fit
            if variant in wanted and backend == library:
                chosen.append(kernel)
    if not chosen:
        raise options.Usage(
            f"no {' or '.join(wanted)} of {' or '.join(libraries)} trains here",
            tip="python -m workloads.training --backends tensorflow --variants loop",
        )
    return chosen


def residences(typed: Sequence[str] | None) -> list[str]:
    """Where the samples are that a training takes, by the words of the flag --residence: numpy, tf.data, resident and so on.

    Raises: Usage for an unknown word.
    """
    known = dict.fromkeys(itertools.chain.from_iterable(RESIDENCES.values()))
    return plan.known("residence", typed, list(known))


def switches(typed: Typed) -> dict[str, list[str]]:
    """The options of rows that flags name: option -> the values that it takes in turn, as texts. Those that no flag names are
    left out.

    Raises: Usage for a value that an option cannot have.
    """
    by_name: dict[str, list[str]] = {}
    for switch, known in KNOWN.items():
        flag = switch.removesuffix("_compile")
        words = typed.get(flag)
        if words and switch not in ("data", "residence"):
            by_name[switch] = plan.known("-".join(flag.split("_")), words, known) if known else _texts(words)
    onednn = plan.known("onednn", typed.get("onednn"), ("on", "off"))
    by_name["TF_ENABLE_ONEDNN_OPTS"] = ["1" if word == "on" else "0" for word in onednn]
    by_name["replicas"] = _texts(typed.get("gpus"))
    return {switch: texts for switch, texts in by_name.items() if texts}


def _texts(words: Sequence[str] | None) -> list[str]:
    return [str(count) for count in plan.counts(words)]


def applies(switch: str, device: str, kernel: str, regression: bool) -> bool:
    """Whether an option has an effect on a training by this kernel on this device. Where it has none, its values need no rows.

    switch: the option's name. regression: whether the model learns numbers and not classes.
    """
    kind_of_device = "cpu" if device == "cpu" else "gpu"
    if _ON.get(switch, kind_of_device) != kind_of_device:
        return False
    if switch == "targets" and not regression:
        return False
    if kernel == studies.JAX_LOOP and switch in _NOT_JAX:
        return False
    return kernel == studies.FIT or switch not in _FIT_ALONE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """Trainings in every combination of some ways to train them."""

    #: The trainings, model by model.
    problems: tuple[Training, ...]
    #: Ways of training, by the names that rows have.
    kernels: tuple[str, ...]
    #: Whether the ways of training were named; else a training has its usual ones of these.
    kernels_named: bool
    #: Where the samples live; () for the usual place of each way of training.
    residences: tuple[str, ...]
    #: Switch -> the texts that it takes in turn.
    switches: dict[str, list[str]]
    #: synthetic or real.
    data: str

    def rows(self, devices: Sequence[str], threads: Sequence[int]) -> list[Row]:
        """The rows of all trainings on these devices. threads: numbers of threads on the CPU; () for TensorFlow's own choice.

        Raises: Usage where options of the grid do not fit a training.
        """
        rows: list[Row] = []
        for problem in self.problems:
            network = networks.known(problem.model)  # None for a user's model
            if "targets" in self.switches and network and not network.regression:
                message = f"--targets is for a regression, which {problem.model} is not"
                raise options.Usage(message, wrong="--model", right="--model peaks")
            for device, (kernel, residence) in itertools.product(devices, self._kernels_of(problem)):
                counts: Sequence[int | None] = threads if device == "cpu" and threads else [None]
                for count in counts:
                    for values in self._option_values(problem, device, kernel):
                        switches = settings.without_defaults({"data": self.data, "residence": residence, **values})
                        rows.append(Row(kernel, problem, Settings(device, threads=count, switches=switches)))
        return distinct(rows)

    def _kernels_of(self, problem: Training) -> list[tuple[str, str]]:
        """The ways to train a problem: pairs (kernel, residence), as ("training/keras/fit", "numpy").

        A kernel is a way of training, a residence the place that it takes its samples from. Where the user has named no kernels,
        a problem has only usual ones: Keras's fit; epochs on the device, where a residence is named; bare loops, where its
        article trains it in one batch.
        Raises: Usage for residences that none of the kernels has.
        """
        is_usual = {
            "fit": True,
            "resident": bool(self.residences),
            "loop": _trains_in_one_batch(networks.known(problem.model)),
        }
        pairs = []
        for kernel in self.kernels:
            variant = KERNELS[kernel]
            residences = self.residences or (["numpy"] if variant == "fit" else RESIDENCES[variant])
            if is_usual[variant] or self.kernels_named:
                pairs += [(kernel, residence) for residence in residences if residence in RESIDENCES[variant]]
        if not pairs:
            raise options.Usage(
                f"nothing asked for trains with --residence {' '.join(self.residences)}",
                tip="python -m workloads.training --variants resident loop --residence resident",
            )
        return pairs

    def _option_values(self, problem: Training, device: str, kernel: str) -> Iterator[dict[str, str]]:
        """Every combination of values of the options that have an effect on a training by this kernel on this device: option ->
        value.

        More than one replica needs a strategy, which is added.
        """
        network = networks.known(problem.model)  # None for a user's model, which may be a regression
        regression = not network or network.regression
        effective = [option for option in self.switches if applies(option, device, kernel, regression)]
        for values in itertools.product(*(self.switches[option] for option in effective)):
            value_of = dict(zip(effective, values, strict=True))
            if value_of.get("replicas", "1") != "1":
                value_of["strategy"] = STRATEGIES[value_of.get("keras_backend", "tensorflow")]
            yield value_of


def require_keras(libraries: Iterable[str] = ("tensorflow",)) -> None:
    """Raises Missing, with the command that installs it, where Keras is not installed, or TensorFlow where it is among
    `libraries`, the backends that Keras is to run on. Imports neither."""
    required = {"keras"}
    if "tensorflow" in libraries:
        required.add("tensorflow")
    if any(importlib.util.find_spec(name) is None for name in required):
        lacking = registry.NotInstalled("keras")
        raise options.Missing(lacking.what, tip=lacking.command)

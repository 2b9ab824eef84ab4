"""Turns the arguments of `python -m workloads.training` (models, shapes, ways of training, switches) into rows."""

import contextlib
import importlib.util
import itertools
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from kernels import networks, registry
from kernels.problems import Training
from workloads import options
from workloads.frameworks import data, input_pipeline, several_gpus, studies
from workloads.frameworks.data_parallel import STRATEGIES
from workloads.harness import plan, worker
from workloads.harness.timing import Limits
from workloads.records import Machine, Row, Settings, distinct, model_files, settings
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
# Flags that a study has its own of.
_STUDY_HAS = "model inputs width depth outputs hidden_layers batch samples steps epochs dtypes jit"
_STUDY_HAS += f" {' '.join(KNOWN)} onednn variants backends threads gpus"
_MLP = {"inputs": 784, "width": 500, "depth": 2, "outputs": 10}
_ONLY_OF = {**dict.fromkeys(_MLP, "mlp"), "hidden_layers": "fashion-mlp"}


def models(args: Namespace) -> list[str]:
    """The models asked for, generators and user's own by the names that rows have.

    Raises: Usage for an unknown one and for flags of a model that was not asked for.
    """
    words, found = options.words(args.model) or [MODEL], []
    for flag, model in _ONLY_OF.items():
        if getattr(args, flag) and model not in words:
            said = f"--{flag.replace('_', '-')} is for the model {model}, which was not asked for"
            raise options.Usage(said, wrong="--model", right=f"--model {model}")
    for name in words:
        if name == "mlp":
            counts = [plan.counts(getattr(args, flag), default) for flag, default in _MLP.items()]
            found += [f"mlp-{i}-{w}x{d}-{o}" for i, w, d, o in itertools.product(*counts)]
        elif name == "fashion-mlp" and args.hidden_layers:
            found += [f"fashion-mlp-{layers}" for layers in options.sizes(args.hidden_layers)]
        else:
            found.append(known_model(name))
    return list(dict.fromkeys(found))


def known_model(name: str) -> str:
    """The name of a network, or of the user's own model, if it exists.

    Raises: Usage.
    """
    if not settings.is_user_model(name):
        return settings.network(name, own=True).name
    model_files.require(name)
    return name


def network(name: str, time_limit_s: float = 60) -> networks.Network:
    """The layers of a network by its name; of a user's own model as a process that builds it describes them.

    Raises: Usage for an unknown name and a model that cannot be used; Missing without TensorFlow, and when the model cannot be
    built in time.
    """
    if not settings.is_user_model(known_model(name)):
        return networks.find(name)
    require_keras()
    row = Row("training/keras/build", Training(name, 1, 1), Settings(switches={"data": "synthetic"}))
    with contextlib.closing(worker.Worker(worker.environment(row, {}))) as builder:
        m = builder.ask(worker.Order("measure", row, Limits()), time_limit_s)
    if m.ok:
        return msgspec.json.decode(m.notes["layers"], type=networks.Network)
    if "time limit" in m.reason:
        said = f"{name} cannot be described: building it has {m.reason}"
        raise options.Missing(said, wrong="--time-limit", right=f"--time-limit {5 * time_limit_s:g}")
    said = m.reason.replace("its process ended", f"{name} ended the process that built it", 1)
    raise model_files.unusable(said, name)


def layers(args: Namespace, kind: str) -> list[networks.Work]:
    """The products of one kind (conv, dense) in a training step of --model, in the directions and batches asked for: layer
    by layer in each precision. The first layer has no dgrad, as nothing needs it.

    Raises: Usage for a network that has none.
    """
    args.network = getattr(args, "network", None) or network(args.model)
    wanted, batches = plan.directions(args), plan.counts(args.batch, 32)
    steps = [
        [[w for w in networks.step(args.network, n, *p) if w.kind == kind] for p in plan.precisions(args)]
        for n in batches
    ]
    if not steps[0][0]:
        other = f"python -m workloads.{'matmul' if kind == 'conv' else 'conv'} --model {args.model}"
        raise options.Usage(
            f"{args.model} has no {_KINDS[kind]}; the command below times the layers that it has",
            f"{other} --batch {batches[0]}",
        )
    found = [w for step in steps for same in zip(*step, strict=True) for w in same if w.direction in wanted]
    if not found:
        there = "fprop and wgrad, as only its first layer is one"
        raise options.Usage(f"the {_KINDS[kind]} of {args.model} have no {' or '.join(wanted)}: there are {there}")
    return found


def problems(args: Namespace) -> list[Training]:
    """The trainings asked for: model by model, by batch, samples, epochs and type.

    A model that its article trains in one batch has all samples in one, unless --batch says otherwise.
    Raises: Usage for an unknown model or type and for words that are no sizes.
    """
    dtypes = plan.known("type", args.dtypes, data.DTYPES) or ["float32"]
    found = []
    for model in models(args):
        network = networks.known(model)
        whole = _whole(network)
        if args.data == "real" and network and not network.data:
            raise options.Usage(f"{model} has no real data set", wrong="--data")
        if network and network.regression and "uint8" in dtypes:
            why = f"{model} learns from points that are no whole numbers: not as uint8"
            raise options.Usage(why, wrong="--dtypes", right="--dtypes float32")
        if network and whole and not args.batch:
            shapes = [(count, count) for count in plan.counts(args.samples, network.samples)]
        else:
            shapes = [
                (batch, count)
                for batch in plan.counts(args.batch, BATCH)
                for count in plan.counts(args.samples, batch * (args.steps or studies.short(model, batch).steps))
            ]
        epochs = plan.counts(args.epochs, studies.FULL_BATCH_EPOCHS if whole else 1)
        found += [Training(model, *shape, e, dtype) for shape in shapes for e in epochs for dtype in dtypes]
    return found


def _whole(network) -> bool:
    """Whether the network's article trains it on all samples in one batch."""
    return network is not None and network.batch == network.samples


def kernels(args: Namespace) -> list[str]:
    """The ways of training asked for. By default Keras's fit; what --residence names besides; for a model that its article
    trains in one batch the bare loops too, JAX's where it is installed.

    Raises: Usage for an unknown backend or variant; Missing for a library that was asked for and is not here.
    """
    backends = plan.known("backend", args.backends, BACKENDS, " for training") or list(BACKENDS)
    variants = plan.known("variant", args.variants, VARIANTS, " for training")
    if "jax" in backends and not studies.available("jax"):
        if args.backends:
            raise options.Missing("jax is not installed", f"{options.python()} -m pip install jax")
        backends.remove("jax")
    wanted = variants or VARIANTS
    found = [k for name in backends for k, v in KERNELS.items() if v in wanted and k.split("/")[1] == name]
    if not found:
        raise options.Usage(
            f"no {' or '.join(variants)} of {' or '.join(backends)} trains here",
            "python -m workloads.training --backends tensorflow --variants loop",
        )
    return found


def _ways(args: Namespace, problem, every: list[str]) -> list[tuple[str, str]]:
    """(kernel, residence) of a problem.

    Raises: Usage for a residence that none of the kernels has.
    """
    residences = plan.known("residence", args.residence, list(dict.fromkeys(itertools.chain(*RESIDENCES.values()))))
    usual = {"fit": True, "resident": bool(residences), "loop": _whole(networks.known(problem.model))}
    found = []
    for kernel in every:
        variant = KERNELS[kernel]
        wanted = residences or (["numpy"] if variant == "fit" else RESIDENCES[variant])
        if usual[variant] or args.variants or args.backends:
            found += [(kernel, word) for word in wanted if word in RESIDENCES[variant]]
    if not found:
        raise options.Usage(
            f"nothing asked for trains with --residence {' '.join(residences)}",
            "python -m workloads.training --variants resident loop --residence resident",
        )
    return found


def switches(args: Namespace) -> dict[str, list[str]]:
    """The switches asked for, a list of texts each.

    Raises: Usage for a text that a switch cannot have.
    """
    found = {}
    for option, known in KNOWN.items():
        flag = option.removesuffix("_compile")
        if option not in ("data", "residence") and (words := getattr(args, flag, None)):
            found[option] = plan.known(flag.replace("_", "-"), words, known) if known else _texts(words)
    onednn = plan.known("onednn", args.onednn, ("on", "off"))
    found["TF_ENABLE_ONEDNN_OPTS"] = [{"on": "1", "off": "0"}[word] for word in onednn]
    found["replicas"] = _texts(getattr(args, "gpus", None))
    return {switch: texts for switch, texts in found.items() if texts}


def _texts(given: list[str] | None) -> list[str]:
    return list(map(str, plan.counts(given)))


def applies(switch: str, device: str, kernel: str, regression: bool) -> bool:
    """Whether a switch has an effect on such a row; else the row is made once, without it."""
    if not device.startswith(_ON.get(switch, "")) or (switch == "targets" and not regression):
        return False
    if kernel.split("/")[1] == "jax" and switch in _NOT_JAX:
        return False
    return kernel == studies.FIT or switch not in _FIT_ALONE


def rows(args: Namespace, here) -> list:
    """The trainings in every way asked for; the products for their budget are known when they have run.

    Raises: Usage for what trains nothing; Missing for a device or library that is not here.
    """
    on = plan.devices(args, here)
    most = several_gpus.require(args, here)
    if args.study:
        return _studied(args, on, most)
    if args.gpus:
        on = several_gpus.devices(args, on)
    every, given = kernels(args), switches(args)
    found = []
    for problem in problems(args):
        network = networks.known(problem.model)
        regression = not network or network.regression
        if "targets" in given and not regression:
            said = f"--targets is for a regression, which {problem.model} is not"
            raise options.Usage(said, wrong="--model", right="--model peaks")
        for device, (kernel, home) in itertools.product(on, _ways(args, problem, every)):
            own = {s: texts for s, texts in given.items() if applies(s, device, kernel, regression)}
            threads = plan.counts(args.threads, None) if device == "cpu" else [None]
            for count, texts in itertools.product(threads, itertools.product(*own.values())):
                chosen = {"data": args.data, "residence": home, **dict(zip(own, texts, strict=True))}
                if chosen.get("replicas", "1") != "1":
                    chosen["strategy"] = STRATEGIES[chosen.get("keras_backend", "tensorflow")]
                found.append(Row(kernel, problem, Settings(device, count, switches=settings.changed(chosen))))
    return distinct(found)


def _studied(args: Namespace, on: list[str], most: int) -> list:
    """The rows of the studies asked for, without those of `side_by_side`. `all` includes the study of several GPUs if any.

    Raises: Usage for an unknown one, and for flags whose values a study sets itself; Missing.
    """
    names = plan.known("study", args.study, (*studies.NAMES, "all"))
    _alone(args, "--study", several_gpus.TAKES if names == [studies.DATA_PARALLEL] else ())
    options.refuse(args, ["predicted"], "--study brings its own rows")
    several = studies.DATA_PARALLEL in names or ("all" in names and most > 1)
    return studies.rows(names, on) + (several_gpus.rows(args, most) if several else [])


def _alone(args: Namespace, flag: str, own: Iterable[str] = ()) -> None:
    """Raises: Usage for flags beside one that brings rows of its own, but for those in `own`."""
    usual = () if args.data != "synthetic" else ("data",)
    options.refuse(
        args, [name for name in _STUDY_HAS.split() if name not in (*own, *usual)], f"{flag} brings its own rows"
    )


def predicted(args: Namespace, here: Machine, load: Callable[[str], list], makes: str) -> list[Row]:
    """The trainings of saved predictions, unchanged, on the devices asked for. A note counts those of other devices.

    `load` reads them; `makes`: a command that saves some.
    Raises: Usage for a file that holds none, none of these devices, a model that is not known, or flags that say otherwise;
    Missing for a device that is not here.
    """
    on, file = plan.devices(args, here), args.predicted
    several_gpus.require(args, here)
    saved = load(file)
    _alone(args, "--predicted")
    others = Counter(p.settings.device for p in saved if p.settings.device not in on)
    if others.total() == len(saved):
        raise options.Usage(f"{file} has predictions for {', '.join(others)}; asked for: {', '.join(on)}", makes)
    for device, count in others.items():
        plan.note(
            args, f"{file}: {count} of {len(saved)} predictions left out, being for {device}; taken: {', '.join(on)}"
        )
    found = []
    for p in (p for p in saved if p.settings.device in on):
        try:
            known_model(p.training.model)
        except options.Usage as error:
            raise options.Usage(f"{file}: {error}", makes) from error
        resident = p.settings.keras.residence == "resident"
        found.append(Row(studies.RESIDENT if resident else studies.FIT, p.training, p.settings))
    return distinct(found)


def require_keras(libraries: Iterable[str] = ("tensorflow",)) -> None:
    """Raises Missing, with what installs it, unless Keras is here, and TensorFlow where it is among what Keras is to run on;
    imports neither."""
    if any(importlib.util.find_spec(name) is None for name in {"keras", *libraries} & {"keras", "tensorflow"}):
        said, _, tip = str(registry.NotInstalled("keras")).partition("; install it with: ")
        raise options.Missing(said, tip)

"""Times what a Keras model needs to answer samples, one by one and in batches, on the CPU and the GPU."""

import itertools
import sys
from argparse import Namespace

from workloads import options
from workloads.printing import Lines, number, scaled, timed, where
from workloads.session import Workload, unfinished

QUESTION = "Does a GPU answer sooner once a model is trained?"
EXAMPLE = "python -m workloads.inference --model cifar10-cnn --batch 1:256:x4"
EXAMPLES = (EXAMPLE, "python -m workloads.inference --model file.py:function --batch 1 32")
LONG = """Answers batches of samples by model.predict and by a tf.function of the model, on the CPU and the GPU: with the samples
on the device already, and array to array with both copies; single requests with several in flight; joules a sample where
a counter is readable. It ends with samples a second and with the batch from which the GPU wins."""
SEEDS = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn", "peaks", "inception-v3")
VARIANTS = ("predict", "call", "serve")
MODES = ("resident", "roundtrip")
BATCHES, IN_FLIGHT = "1:256:x4", ("1", "4", "16")
FLAGS = f"""
--model NAME ... =cifar10-cnn   the models that answer, also file.py:function and file.keras; `seeds`: the articles' and
                                inception-v3 (cifar10-cnn)
--batch N ... ={BATCHES}        samples a call ({BATCHES})
--modes MODE ... ={",".join(MODES)}  resident (samples and answers stay on the device) roundtrip (array to array) (both)
--in-flight N ...               so many single requests at a time, by the variant `serve` ({" ".join(IN_FLIGHT)})
--jit WORD ... =auto            jit_compile: auto on off (auto: Keras's choice)
--onednn WORD ...               TF_ENABLE_ONEDNN_OPTS of CPU rows: on off (TensorFlow's own choice)
--precision NAME ... =float32   Keras's dtype policy: float32 mixed_bfloat16 mixed_float16 (float32)
--data {{synthetic,real}} =synthetic  made-up samples of the same shape, or the real ones, downloaded (synthetic)
--no-refine                     only the batches named, none added around a crossover"""


def names(args: Namespace) -> list[str]:
    """The models asked for as the training command knows them, a user's own too; `seeds` as its list.

    Raises: Usage for an unknown one.
    """
    from workloads.frameworks import grid

    words = options.words(args.model)
    no_flags = dict.fromkeys(("inputs", "width", "depth", "outputs", "hidden_layers"))
    every = [name for word in words for name in (SEEDS if word in ("seed", "seeds") else (word,))]
    return grid.models(Namespace(model=every, **no_flags))


def _calls(args: Namespace) -> list[tuple[str, str, int, dict[str, str]]]:
    """(variant, mode, samples, switches) of each call asked for: batch by batch every way to answer, then the single requests.

    Raises: Usage.
    """
    from workloads.harness import plan

    variants = plan.known("variant", args.variants, VARIANTS) or list(VARIANTS if args.in_flight else VARIANTS[:2])
    modes = {"call": plan.known("mode", args.modes, MODES)}
    modes["predict"] = [mode for mode in modes["call"] if mode == "roundtrip"]
    if variants == ["predict"] and not modes["predict"]:
        raise options.Usage(
            "predict answers arrays with arrays: it has no resident mode",
            "python -m workloads.inference --variants predict --modes roundtrip",
        )
    calls: list[tuple[str, str, int, dict[str, str]]] = []
    for batch in options.sizes(args.batch):
        calls += [(v, mode, batch, {}) for v in variants if v != "serve" for mode in modes[v]]
    if "serve" in variants:
        calls += [("serve", "roundtrip", 1, {"in_flight": str(n)}) for n in options.sizes(args.in_flight or IN_FLIGHT)]
    return calls


def rows(args: Namespace, here) -> list:
    """The rows of the sweep: every call of every model, compiled in every way asked for. Devices take turns, so that a run that
    ends early has both sides of its rows.

    Raises: Usage; Missing for a device that is not here.
    """
    from kernels.problems import Inference
    from workloads.frameworks import forecast, grid
    from workloads.harness import plan
    from workloads.records import Row, Settings, settings

    plan.known("backend", args.backends, ("keras",))
    calls, given, found = _calls(args), grid.switches(args), []
    given.pop("in_flight", None)  # of the variant `serve` alone
    for device in plan.devices(args, here):
        own = {s: texts for s, texts in given.items() if grid.applies(s, device, "inference/keras/call", False)}
        threads = plan.counts(args.threads, None) if device == "cpu" else [None]
        for count, model, texts in itertools.product(threads, names(args), itertools.product(*own.values())):
            for variant, mode, batch, more in calls:
                chosen = settings.changed({"data": args.data, **dict(zip(own, texts, strict=True)), **more})
                way = Settings(device, count, mode, switches=chosen)
                found.append(Row(f"inference/keras/{variant}", Inference(model, batch), way))
    return forecast.in_turns(found)


def refine(args: Namespace, here, done: list) -> list:
    """The rows still needed to pin down the batches from which the GPU wins."""
    from msgspec.structs import replace

    from analysis.training import inference
    from workloads.records import distinct

    wanted = [replace(m.row, problem=replace(m.problem, batch=batch)) for m, batch in inference.wanted(done)]
    return sorted(distinct(wanted, done), key=lambda row: (row.problem.model, row.problem.batch, row.device))


def _measured(args: Namespace, run, shown):
    """Raises: Missing without TensorFlow."""
    from workloads.frameworks import grid

    grid.require_keras()
    return WORKLOAD.sweep(args, run, shown)


class Table(Lines):
    """A line a row: the call, its device, milliseconds a call, samples a second and joules a sample."""

    HEAD = (
        "model 12< | batch 5 | call 7< | mode 9< | device 9< | ms/call 8 | ±% 4 | queued ms 9 | samples/s 9 | "
        "J/sample 8 | first call s 12 | notes 5<"
    )
    LEAST = "±% | first call s | J/sample | queued ms | notes"

    def wanted(self, m) -> bool:
        return m.problem.op == "inference" and super().wanted(m)

    def cells(self, m) -> list[str]:
        from analysis.stats import of

        s = m.settings
        start = [m.problem.model, str(m.problem.batch), m.variant, s.mode, where(m)]
        first = number(m.phases_s.get("first_call"))
        notes = [f"{name}={text}" for name, text in s.switches.items() if name not in ("data", "jit_compile")]
        if not m.ok:
            return [*start, m.status, "-", "-", "-", "-", first, " ".join([*notes, m.reason])]
        host, taken = of(m.on("host-latency")), m.on("host-throughput")
        queued = of(taken) if taken else None
        best = queued.value if queued else host.value
        notes = ["jit compiled" if m.values.get("jit_compile") else "op by op", *notes, *m.flags]
        return [
            *start,
            *timed(host, 1e3),
            scaled(queued, 1e3),
            number(m.problem.batch / best),
            number(m.values.get("joules_per_sample")),
            first,
            " ".join(notes),
        ]


def answer(args: Namespace, outcome) -> None:
    from analysis.text import inference as inference_words

    if said := unfinished(outcome) + inference_words.lines(outcome.measurements, outcome.run.machine):
        print("\n" + "\n".join(said))


COMMAND = "inference", QUESTION, LONG, EXAMPLES, "model batch modes", FLAGS
WORKLOAD = Workload(*COMMAND, rows, Table, answer, refine, _measured, of_models=True)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())

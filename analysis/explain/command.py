"""Explains a training (an article's, a complaint's or your own model's): which device wins, why, and what would help."""

from typing import Any

import msgspec

from analysis.explain import explanation, missing_parts, profiles, training_request, verify
from analysis.explain.explanation import Explanation
from analysis.explain.framework import framework
from analysis.explain.missing_parts import Explained
from analysis.explain.plan import ExplainPlan
from analysis.explain.request import Request
from analysis.explain.training_answer import TrainingAnswer, training_answer
from analysis.predict.profile import Lacking
from analysis.text import advice, cases
from analysis.text.cases import Reply
from analysis.text.explanation.answer import answer
from analysis.text.explanation.details import details
from analysis.text.explanation.sentence import sentence
from kernels import networks
from kernels.problems import Training
from workloads import options
from workloads.machine import facts, load
from workloads.records import published_cases

SUITE = "python -m workloads.suite --quick"  # measures what a prediction needs
CASES_PAGE = """# Articles and complaints, answered

`python -m analysis.explain --case all --format md {runs} > docs/cases.md` writes this page.
"""


def run(plan: ExplainPlan) -> int:
    """Prints what the plan asks for; the exit code.

    Raises: options.Usage for a change that the answer does not have; Missing where no row tells the answer.
    """
    try:
        if plan.every_case:
            _print_every_case(plan)
        else:
            _print_answer(plan)
    except Lacking as lacking:
        message = f"no rows of this machine tell it: {lacking.what}"
        tip = SUITE if plan.script else f"{plan.command} --measure"
        raise options.Missing(message, tip) from lacking
    return options.OK


def answered(plan: ExplainPlan) -> TrainingAnswer:
    """The answer for the model of a plan, for a notebook.

    Raises: options.Missing where no row tells it.
    """
    request = training_request.model_request(plan)
    try:
        explained = missing_parts.explained(plan, request, profiles.sources(plan.runs, plan.gpu_profile))
    except Lacking as lacking:
        message = f"no rows of this machine tell it: {lacking.what}; measure=True measures them"
        raise options.Missing(message) from lacking
    return training_answer(explained.explanation, _verdict(explained, plan.command))


def of_run(model: str, run: str) -> list[str]:
    """The answer for a model of a name by the rows of one run; without a GPU's, beside a stored one."""
    network = networks.find(model)
    training = Training(model, network.batch, network.samples, network.epochs)
    try:
        explained = explanation.explain(Request(training), profiles.sources([run], or_stored=True))
    except Lacking as lacking:
        return [f"No verdict on {model}: {lacking}"]
    return answer(explained, options.typed(f"python -m analysis.explain --model {model}"))


def _print_every_case(plan: ExplainPlan) -> None:
    """Prints every case's answer; as Markdown that is docs/cases.md."""
    sources = profiles.sources(plan.runs, plan.gpu_profile)
    replies = {}
    for name, case in published_cases.EVERY.items():
        replies[name] = cases.reply(case, sources, training_request.case_request(case, plan))
    if plan.format == "json":
        _print_json(replies)
        return
    lines = []
    if plan.markdown:
        lines += [*CASES_PAGE.format(runs=" ".join(plan.runs)).splitlines(), ""]
    lines += cases.overview(list(replies.values()), plan.markdown)
    for reply in replies.values():
        lines += ["", *cases.lines(reply, markdown=plan.markdown)]
    print("\n".join(lines))


def _print_answer(plan: ExplainPlan) -> None:
    """Prints the answer to a case's question, the answer for a training, or both; then measures changes with --verify."""
    request = training_request.requested(plan)
    sources = profiles.sources(plan.runs, plan.gpu_profile)
    reply = cases.reply(plan.case, sources, request) if plan.case else None
    explained = None
    if request and plan.explains_training:
        explained = missing_parts.explained(plan, request, sources)
    code = _code(explained, plan.change_number) if plan.change_number else None
    if plan.format == "json":
        _print_json(_record(plan, reply, explained, code))
    elif code:
        heading = f"{plan.change_number}. {code.change}"
        print("\n".join([heading, "", *code.lines(plan.markdown)]))
    else:
        print("\n".join(_lines(plan, reply, explained)))
    if plan.verified_changes and explained:
        _verify(plan, explained.explanation)


def _lines(plan: ExplainPlan, reply: Reply | None, explained: Explained | None) -> list[str]:
    """The answers as lines of text or Markdown."""
    lines = []
    if plan.case and reply:
        leads_on = plan.case.training is not None and not plan.all_details
        lines += cases.lines(reply, plan.command if leads_on else "", plan.markdown)
    if reply and explained:
        lines.append("")
    if explained:
        lines += _verdict(explained, plan.command, complete=plan.all_details, markdown=plan.markdown)
    if explained and plan.all_details:
        lines += details(explained.explanation, plan.markdown)
    return lines


def _record(
    plan: ExplainPlan, reply: Reply | None, explained: Explained | None, code: advice.Code | None
) -> dict[str, Any]:
    """The answers as --format json has them: docs/answer.md lists the fields."""
    record = msgspec.structs.asdict(TrainingAnswer())
    if explained:
        verdict = _verdict(explained, plan.command, complete=plan.all_details)
        record = msgspec.structs.asdict(training_answer(explained.explanation, verdict))
    if plan.case:
        record |= {"case": plan.case.name, "answer": reply}
    if explained:
        record |= {
            "framework": sentence(framework(explained.explanation.sources)),
            "explanation": explained.explanation.record(),
        }
    if code:
        record["code"] = code
    return record


def _print_json(record: dict[str, Any]) -> None:
    print(msgspec.json.encode(record, enc_hook=float).decode())  # NumPy's numbers are floats that JSON does not know


def _verdict(explained: Explained, command: str, *, complete: bool = False, markdown: bool = False) -> list[str]:
    """The lines of the answer for a training."""
    has_other_gpu = explained.explanation.sources.borrowed is not None
    gpu_is_lost = explained.explanation.gpu is not None and bool(facts.gpu_problem())
    return answer(
        explained.explanation,
        command,
        measuring_s=explained.measuring_s,
        can_check=not has_other_gpu and not gpu_is_lost and explained.explanation.request.script is None,
        complete=complete,
        markdown=markdown,
    )


def _code(explained: Explained | None, number: int) -> advice.Code:
    """The code of the answer's change of that number.

    Raises: Usage where the answer has no such change.
    """
    main = explained.explanation.main if explained else None
    actions = explained.explanation.actions if explained else []
    if main is None or not actions:
        raise options.Usage("this answer advises no change", wrong="--how")
    if number > len(actions):
        numbers = ", ".join(str(one) for one in range(1, len(actions) + 1))
        raise options.Usage(f"no change {number} in this answer; its changes: {numbers}", wrong=str(number), right="1")
    return advice.code(actions[number - 1].change, main.training, main.settings)


def _verify(plan: ExplainPlan, explanation_: Explanation) -> None:
    """Measures the best changes here and prints each beside what was predicted."""
    if plan.wait_quiet:
        load.wait_until_quiet()
    for line in verify.lines(explanation_, plan.verified_changes):
        print(line, flush=True)

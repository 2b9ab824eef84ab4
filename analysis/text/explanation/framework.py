"""Whether TensorFlow used the GPU."""

from analysis.finding import Finding
from analysis.text.sentences import say

_TEMPLATES = {
    "gpu-used": "On {where} TensorFlow used the GPU in {rows:,} rows, {trained:,} of them trainings.",
    "gpu-refused": "On {where} TensorFlow did not use the GPU: {reason}.",
    "gpu-not-tried": "{where} has a GPU; python -m workloads.doctor says whether TensorFlow sees it.",
    "gpu-not-measured": "On {where} no GPU was measured; --gpu-profile nvidia-h200 sets a stored one beside it.",
}
_HERE = "This machine has {gpu}. {used}"


def gpu_use(finding: Finding) -> str:
    """The sentence on whether TensorFlow used the GPU. Where the GPU is another machine's (here_problem is no None), first what
    this machine has.
    """
    used = say(_TEMPLATES[finding.kind], where=finding.subject, **finding.numbers)
    problem = finding.numbers["here_problem"]
    if problem is None:
        return used
    gpu = f"no GPU that can be measured ({problem})" if problem else "a GPU, which was left aside"
    return say(_HERE, gpu=gpu, used=used)


SENTENCES = dict.fromkeys(_TEMPLATES, gpu_use)

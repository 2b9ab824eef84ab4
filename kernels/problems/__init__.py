"""What is computed: frozen records that know their FLOPs, their compulsory bytes (every input read once, every output
written once) and their inputs, so that all kernels share one count. Imports nothing else of the project.
"""

from typing import TYPE_CHECKING, Any

from kernels.problems.collective import ONE_SHOT_BYTES, AllReduce
from kernels.problems.conv import Conv
from kernels.problems.input_pipeline import InputPipeline
from kernels.problems.launch import Launch
from kernels.problems.layer import LayerCall
from kernels.problems.matmul import Matmul
from kernels.problems.model import Inference, Training
from kernels.problems.peak import Peak
from kernels.problems.peer import AtOnce, PeerCopy
from kernels.problems.stream import Stream
from kernels.problems.transfer import Transfer

if TYPE_CHECKING:
    Problem = Any  # which one it is, `op` says: no checker follows that, so to them it has every field
else:
    Problem = (
        Matmul
        | Conv
        | Stream
        | Peak
        | Transfer
        | Launch
        | Training
        | Inference
        | InputPipeline
        | PeerCopy
        | AllReduce
        | AtOnce
        | LayerCall
    )

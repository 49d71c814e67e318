"""The learner, and one small file per method."""

from driftwise.learn.cls_er import CLSER, CLSEROptions
from driftwise.learn.derpp import DERpp, DERppOptions
from driftwise.learn.er import ER
from driftwise.learn.er_ace import ERACE
from driftwise.learn.learner import Learner, Practice
from driftwise.learn.objective import Draw, Inputs, Objective, Outcome
from driftwise.learn.references import Finetune, Joint, JointOptions
from driftwise.learn.ser import SER, SEROptions

__all__ = [
    "CLSER",
    "ER",
    "ERACE",
    "SER",
    "CLSEROptions",
    "DERpp",
    "DERppOptions",
    "Draw",
    "Finetune",
    "Inputs",
    "Joint",
    "JointOptions",
    "Learner",
    "Objective",
    "Outcome",
    "Practice",
    "SEROptions",
]

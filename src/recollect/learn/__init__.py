"""The learner, and one small file per method."""

from recollect.learn.cls_er import CLSER, CLSEROptions
from recollect.learn.derpp import DERpp, DERppOptions
from recollect.learn.er import ER
from recollect.learn.er_ace import ERACE
from recollect.learn.learner import Learner, Practice
from recollect.learn.objective import Draw, Inputs, Objective, Outcome
from recollect.learn.references import Finetune, Joint, JointOptions
from recollect.learn.ser import SER, SEROptions

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

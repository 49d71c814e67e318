"""The methods, one small file each."""

from driftwise.methods.base import Draw, Inputs, Objective, Outcome
from driftwise.methods.baselines import Finetune, Joint, JointOptions
from driftwise.methods.cls_er import CLSER, CLSEROptions
from driftwise.methods.derpp import DERpp, DERppOptions
from driftwise.methods.er import ER
from driftwise.methods.er_ace import ERACE
from driftwise.methods.ser import SER, SEROptions

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
    "Objective",
    "Outcome",
    "SEROptions",
]

"""The methods, one small file each."""

from driftwise.methods.analytic import SLDA, AnalyticMethod, NearestMean, Ridge
from driftwise.methods.base import Draw, Inputs, Method, Outcome
from driftwise.methods.baselines import Finetune, Joint
from driftwise.methods.cls_er import CLSER
from driftwise.methods.derpp import DERpp
from driftwise.methods.er import ER
from driftwise.methods.er_ace import ERACE
from driftwise.methods.ser import SER

__all__ = [
    "CLSER",
    "ER",
    "ERACE",
    "SER",
    "SLDA",
    "AnalyticMethod",
    "DERpp",
    "Draw",
    "Finetune",
    "Inputs",
    "Joint",
    "Method",
    "NearestMean",
    "Outcome",
    "Ridge",
]

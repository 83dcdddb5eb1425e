"""Methods, one file each, and the contract that they share with the engine: all that a method of your own needs."""

from in2r.methods.base import LookUp, Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk, Warmup
from in2r.methods.contrast import LossConfig
from in2r.methods.division import Belief, Division, PartitionConfig, divide_by_mixture, in_two, whole
from in2r.methods.network import Batch, Cost, Net
from in2r.methods.registry import METHODS, build_method, find_method, method_names
from in2r.methods.warmup import HingeWarmup, SceWarmup, warmup_of

__all__ = [
    "METHODS",
    "Batch",
    "Belief",
    "Cost",
    "Division",
    "HingeWarmup",
    "LookUp",
    "LossConfig",
    "Method",
    "MethodConfig",
    "Net",
    "Now",
    "PartitionConfig",
    "SceWarmup",
    "Seen",
    "Step",
    "TrainingPairs",
    "Walk",
    "Warmup",
    "build_method",
    "divide_by_mixture",
    "find_method",
    "in_two",
    "method_names",
    "warmup_of",
    "whole",
]

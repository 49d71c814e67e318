"""When classes arrive and drift, what drift does to pixels, and the stream made of both."""

from driftwise.streams.drift_events import EventSpec, make_schedule, make_script, read_event
from driftwise.streams.label_source import StreamLabels, TaskLabels, WrongAnswers
from driftwise.streams.scenario import class_incremental
from driftwise.streams.schedule import Concept, DriftEvent, Schedule
from driftwise.streams.stream import Stream, Task

__all__ = [
    "Concept",
    "DriftEvent",
    "EventSpec",
    "Schedule",
    "Stream",
    "StreamLabels",
    "Task",
    "TaskLabels",
    "WrongAnswers",
    "class_incremental",
    "make_schedule",
    "make_script",
    "read_event",
]

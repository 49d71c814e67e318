"""Which classes arrive and drift when, what drift does to pixels, and the stream made of both."""

from recollect.streams.labels import TaskLabels
from recollect.streams.schedule import Concept, DriftEvent, Schedule, make_schedule
from recollect.streams.stream import Stream, Task

__all__ = [
    "Concept",
    "DriftEvent",
    "Schedule",
    "Stream",
    "Task",
    "TaskLabels",
    "make_schedule",
]

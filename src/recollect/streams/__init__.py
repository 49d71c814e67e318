"""Which classes arrive and drift when, what drift does to pixels, and the stream made of both."""

from recollect.streams.event_spec import EventSpec, read_event
from recollect.streams.labels import StreamLabels, TaskLabels
from recollect.streams.placement import make_schedule
from recollect.streams.schedule import Concept, DriftEvent, Schedule
from recollect.streams.script import make_script
from recollect.streams.stream import Stream, Task

__all__ = [
    "Concept",
    "DriftEvent",
    "EventSpec",
    "Schedule",
    "Stream",
    "StreamLabels",
    "Task",
    "TaskLabels",
    "make_schedule",
    "make_script",
    "read_event",
]

"""Settings of a service."""

from __future__ import annotations

from dataclasses import dataclass

from driftwise.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """How a service keeps, limits and serves; memory and disk are bounded by these."""

    class_names: tuple[str, ...] = ()
    """a name for each label, as people read them; labels beyond are shown as numbers"""
    save_seconds: float = 60.0
    """the state is saved so often, if anything has changed"""
    log_bytes: int = 64 * 2**20
    """the state is also saved once the log of requests has grown by so many bytes"""
    max_log_bytes: int = 2**30
    """of requests that are in no saved state; beyond that they are refused"""
    snapshot_seconds: float = 600.0
    """a saved state is kept as a snapshot to roll back to so often"""
    max_snapshots: int = 10
    """of them are kept, at least 3: a log that is applied again may return to any of the last ones"""
    max_waiting: int = 64
    """batches and labels that wait for the learner; beyond that they are refused for a moment"""
    max_waiting_bytes: int = 256 * 2**20
    """of their samples, if more than one waits"""
    max_batch: int = 4096
    """samples of one request"""
    max_body: int = 64 * 2**20
    """bytes of one request"""
    max_bodies: int = 256 * 2**20
    """bytes of all requests that are being received or used; beyond that they are refused for a moment"""
    max_decoded: int = 128 * 2**20
    """bytes of the images of one request, decoded"""
    body_seconds: float = 30.0
    """within which the body of a request must have come"""
    rate: float = 2000.0
    """requests a second of one client, on average"""
    lease_seconds: float = 120.0
    """a sample shown to one labeller is shown to no other for so long"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value <= 0:
                raise UserError(f"{name} must be above 0; got {value}")
        if self.max_snapshots < 3:
            raise UserError(f"max_snapshots must be at least 3; got {self.max_snapshots}")

    def name_of(self, label: int) -> str:
        """How people read a label; -1: no class is known."""
        if label < 0:
            return "unknown"
        return self.class_names[label] if label < len(self.class_names) else str(label)

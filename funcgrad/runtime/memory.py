"""How much memory the system still has, so that asking for more is an error here and not the end of the process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LARGE", "available"]

LARGE = 2**28  # what is smaller is not worth a look at the system's counters

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available() -> int | None:
    """Return the bytes that this process can still get without swapping, by the system and by its control group.

    None where the system does not say.
    """
    found = [n for n in (_of_system(), _of_group()) if n is not None]
    return min(found, default=None)


def _of_system() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    kib = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kib[0]) * 1024 if kib else None


def _of_group() -> int | None:
    """The limit of the control group less what is used, files that can be dropped not counted."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(int(limit) - used + int(stat.get("inactive_file", 0)), 0)

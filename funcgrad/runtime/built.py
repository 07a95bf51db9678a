"""Whether the extension beside this file was built from the C sources beside it.

build_ffi.py runs this file by its path, before anything is installed: it needs the standard library alone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["RUNTIME", "STAMP", "is_outdated", "source_digest"]

RUNTIME = Path(__file__).resolve().parent
STAMP = ".built"  # of a build in place, not of a wheel: the build's key and the digest of its sources


def source_digest(csrc: Path) -> str:
    """Sixteen hex digits that name the contents of the C sources."""
    h = hashlib.sha256()
    for path in sorted(p for p in csrc.iterdir() if p.suffix in (".c", ".cpp", ".h")):
        for data in (path.name.encode(), path.read_bytes()):
            h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:16]


def is_outdated(runtime: Path) -> bool:
    """Whether the sources have changed since the build in place; they are read only where a file is newer than it."""
    stamp, csrc = runtime / STAMP, runtime / "csrc"
    try:
        at = stamp.stat().st_mtime_ns
        if all(p.stat().st_mtime_ns <= at for p in (csrc, *csrc.iterdir())):
            return False
        built_from = stamp.read_text().partition(" ")[2]
        return bool(built_from) and built_from != source_digest(csrc)
    except OSError:  # no stamp or no sources: an installed wheel
        return False

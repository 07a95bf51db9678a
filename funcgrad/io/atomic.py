"""Writing a file so that a reader, or a machine that stops, sees the old file or the new one and never half of one."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

__all__ = ["remove_leftovers", "write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Call ``write`` with a new file beside ``path``, then put that file in the place of ``path``.

    The data is on the disk (fsync) before the name points to it, and the name is on the disk (fsync of the directory)
    before this returns.  When anything fails, ``path`` is as it was and the new file is gone.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "note"
    >>> write_atomically(path, lambda file: file.write(b"whole"))
    >>> path.read_bytes()
    b'whole'
    """
    target = os.path.realpath(os.fspath(path))  # through a symbolic link, as open() would
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name[:200]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _sync_directory(folder)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what writers of ``path`` left beside it when they were killed; there must be no other writer now.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / ".model.7.0123abcd.tmp").touch()
    >>> remove_leftovers(folder / "model")
    >>> list(folder.iterdir())
    []
    """
    folder, name = os.path.split(os.path.realpath(os.fspath(path)))
    beside = re.compile(rf"\.{re.escape(name[:200])}\.\d+\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):
        for other in os.listdir(folder):
            if beside.fullmatch(other):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, other))


def _sync_directory(folder: str) -> None:
    """Write a directory's entries to the disk, where the system has such a call."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems refuse to
        pass
    finally:
        os.close(handle)

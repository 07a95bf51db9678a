"""Build ggml's Vulkan backend, libggml-vulkan.so, beside the extension; build_ffi.py runs it for FUNCGRAD_VULKAN=1.

    python build_vulkan.py          build into funcgrad/runtime/
    python build_vulkan.py check    only find or fetch the tool chain (ggml_src/vulkan/toolchain.sh)

The library is built once for each pin, compiler and tool chain and kept in the cache of build_ffi.py; it takes some
minutes.  A machine without Vulkan's loader or without a device ignores it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import build_ffi
from build_ffi import BuildError

SOURCE = build_ffi.SOURCE / "vulkan"
LIBRARY = "libggml-vulkan.so"


def toolchain() -> dict[str, str]:
    """The CMake options that name the Vulkan tool chain; BuildError when something is missing."""
    if sys.platform != "linux":
        raise BuildError(f"Vulkan is built on Linux only, this is {sys.platform}: build without FUNCGRAD_VULKAN.")
    script = ["sh", str(SOURCE / "toolchain.sh"), str(build_ffi.cache_dir() / "vulkan-toolchain")]
    with build_ffi.locked(build_ffi.cache_dir() / "vulkan-toolchain.lock"):
        done = subprocess.run(script, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["toolchain.sh failed"]
        raise BuildError(reason[-1].removeprefix("vulkan: "))
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def key(options: dict[str, str]) -> str:
    """What the library depends on."""
    glslc = options.get("Vulkan_GLSLC_EXECUTABLE") or shutil.which("glslc") or ""
    version = subprocess.run([glslc, "--version"], capture_output=True, text=True).stdout if glslc else ""
    cmakelists = (SOURCE / "CMakeLists.txt").read_bytes()
    return build_ffi.digest(*build_ffi.pin(), cmakelists, build_ffi.compiler_version(), version, platform.machine())


def build() -> Path:
    """The library in the cache, built at most once for each key."""
    options = toolchain()
    prefix = build_ffi.cache_dir() / f"vulkan-{key(options)}"
    library = prefix / "lib" / LIBRARY
    with build_ffi.locked(prefix.with_suffix(".lock")):
        if not library.exists():
            print("funcgrad: compiling ggml's Vulkan backend (some minutes, once)", file=sys.stderr)
            work = prefix.with_suffix(".build")
            given = {**options, "FUNCGRAD_GGML_SOURCE": str(build_ffi.unpack()), "CMAKE_INSTALL_PREFIX": str(prefix)}
            build_ffi.cmake(work, given, "ggml's Vulkan backend", source=SOURCE)
            build_ffi.run([build_ffi.tool("cmake", "cmake"), "--install", str(work)], "installing the Vulkan backend")
            shutil.rmtree(work, ignore_errors=True)
    return library


def build_in_place() -> None:
    """Put the library beside the extension, unless it is there already."""
    built, target = build(), build_ffi.RUNTIME / LIBRARY
    if target.exists() and target.stat().st_mtime_ns == built.stat().st_mtime_ns:
        return
    partial = target.with_name(f".{LIBRARY}.{os.getpid()}")
    shutil.copy2(built, partial)
    os.replace(partial, target)


def main(arguments: list[str]) -> int:
    """Run one of the commands that the module's docstring lists."""
    if arguments not in ([], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        toolchain() if arguments else build_in_place()
    except BuildError as error:
        print(f"funcgrad: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Build ggml, the C kernels and the cffi extension: the build hook of pyproject.toml, and a script.

    python build_ffi.py            build into funcgrad/runtime/, for this machine's CPU
    python build_ffi.py check      only say what is missing: Python's version, its headers, the compilers
    python build_ffi.py fetch      only obtain ggml's source distribution (what an sdist carries)
    python build_ffi.py test-ggml  build ggml's own test-backend-ops and run it on the CPU; operations may follow

ggml is built once for each pin, compiler and set of options, and kept outside the checkout: under FUNCGRAD_CACHE_DIR,
or else the user's cache directory. FUNCGRAD_NATIVE=0 or 1 says whether ggml is compiled for this CPU only; the default
is 1, but 0 for a wheel. FUNCGRAD_JOBS limits the parallel compilers; FUNCGRAD_VERBOSE shows what they print.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, without the build backend
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "ggml_src"
RUNTIME = ROOT / "funcgrad" / "runtime"
CSRC = RUNTIME / "csrc"
MODULE_SUFFIX = ".abi3.so"
LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARIES = tuple(f"lib{name}{LIBRARY_SUFFIX}" for name in ("ggml-base", "ggml-cpu"))
PRODUCTS = (*LIBRARIES, f"libfg_kernels{LIBRARY_SUFFIX}", f"_ggml{MODULE_SUFFIX}")
BUILT = runpy.run_path(str(RUNTIME / "built.py"))  # what the loader knows of a build
STAMP: str = BUILT["STAMP"]
source_digest: Callable[[Path], str] = BUILT["source_digest"]
KEPT_EXTENSIONS = 8  # cached builds of our own sources; the oldest go
GGML_TESTED = (  # what test-ggml runs unless told otherwise
    "ADD,SUB,MUL,DIV,SCALE,CLAMP,SQR,SQRT,LOG,SUM,SUM_ROWS,ARGMAX,REPEAT,CONCAT,CONT,OUT_PROD,GET_ROWS,GET_ROWS_BACK,ARGSORT"
)


class BuildError(Exception):
    """What is missing, in one sentence that says what to install."""


def digest(*parts: bytes | str) -> str:
    """Sixteen hex digits that name the parts."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:16]


def cache_dir() -> Path:
    """Where builds are kept."""
    chosen = os.environ.get("FUNCGRAD_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen).expanduser() if chosen else Path(base) / "funcgrad"


def is_native(default: bool) -> bool:
    """Whether ggml is compiled for this CPU only."""
    return os.environ.get("FUNCGRAD_NATIVE", "1" if default else "0") not in ("0", "")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two builds at once do the work once."""
    import fcntl  # not on Windows, which the build does not support anyway

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


# ---- tools ----


def script_dir() -> Path:
    return Path(sysconfig.get_path("scripts"))


def find_tool(name: str) -> str | None:
    """A program of the system or of this Python environment."""
    return shutil.which(name) or shutil.which(name, path=str(script_dir()))


def tool(name: str, install: str) -> str:
    found = find_tool(name)
    if not found:
        raise BuildError(f"{name} was not found: install {install}.")
    return found


def compilers() -> tuple[str, str]:
    """The C and the C++ compiler."""
    hint = "a C and C++ compiler (Debian and Ubuntu: apt install build-essential; macOS: xcode-select --install)"
    return tool(os.environ.get("CC", "cc"), hint), tool(os.environ.get("CXX", "c++"), hint)


def check() -> None:
    """Raise BuildError when something is missing that pip cannot install."""
    if tuple(sys.version_info) < (3, 10):
        raise BuildError(
            f"Python is {platform.python_version()}: install 3.10 or newer, then make PYTHON=python3.12 test."
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise BuildError("Python.h was not found: install Python's headers (Debian, Ubuntu: apt install python3-dev).")
    compilers()


def compiler_version() -> str:
    return "\n".join(subprocess.run([c, "--version"], capture_output=True, text=True).stdout for c in compilers())


def cpu_identity() -> str:
    """What -march=native depends on."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor() or platform.machine()


def run(command: list[str], what: str) -> None:
    """Run a command quietly; on failure show what it printed and name the step."""
    stdout = None if os.environ.get("FUNCGRAD_VERBOSE") else subprocess.PIPE
    done = subprocess.run(command, text=True, stdout=stdout, stderr=subprocess.STDOUT)
    if done.returncode:
        print("\n".join((done.stdout or "").splitlines()[-60:]), file=sys.stderr)
        raise BuildError(f"{what} failed; the output above says why.")


def cmake(build: Path, options: dict[str, str], what: str, target: str = "all", source: Path = SOURCE) -> None:
    """Configure and build a directory with our CMakeLists."""
    program = tool("cmake", "cmake 3.18 or newer (pip install cmake ninja)")
    ninja = find_tool("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else ["-G", "Unix Makefiles"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = os.environ.get("FUNCGRAD_JOBS") or str(cores)
    defines = [f"-D{key}={value}" for key, value in options.items()]
    cc, cxx = compilers()
    defines += [f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}"]
    configure = [program, "-S", str(source), "-B", str(build), *generator, *defines]
    record = build / "configure.txt"
    if not record.exists() or record.read_text() != "\n".join(configure):  # CMake does not like to be moved
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir(parents=True)
        record.write_text("\n".join(configure))
    run(configure, f"configuring {what}")
    run([program, "--build", str(build), "--target", target, "--parallel", jobs], f"compiling {what}")


# ---- ggml ----


def pin() -> tuple[str, str, str]:
    """Name, version and sha256 of the pinned source distribution."""
    text = (SOURCE / "requirements.txt").read_text()
    found = re.search(r"^([\w-]+)==(\S+)\s*\\\s*--hash=sha256:([0-9a-f]{64})", text, re.MULTILINE)
    if not found:
        raise BuildError("ggml_src/requirements.txt must hold one line NAME==VERSION and its --hash=sha256.")
    return found.group(1), found.group(2), found.group(3)


def archive_path() -> Path:
    name, version, _ = pin()
    return SOURCE / "archive" / f"{name.replace('-', '_')}-{version}.tar.gz"


def archive() -> Path:
    """ggml's source distribution under ggml_src/archive/, downloaded with pip when it is not there."""
    name, version, sha256 = pin()
    path = archive_path()
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
        return path
    print(f"funcgrad: downloading {name} {version} with pip", file=sys.stderr)
    # pip asks the archive for its metadata, which may want CMake: let it find this environment's.
    env = {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", ""), str(script_dir())])}
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, "--require-hashes", "-q"]
    command += ["--disable-pip-version-check", "-d", str(path.parent), "-r", str(SOURCE / "requirements.txt")]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode or not path.exists():
        print(done.stderr[-2000:], file=sys.stderr)
        raise BuildError(f"pip could not download {name} {version}: connect to a network with a Python package index.")
    return path


def unpack() -> Path:
    """The ggml directory of the unpacked archive, under ggml_src/unpacked/."""
    path = archive()
    target = SOURCE / "unpacked" / path.name.removesuffix(".tar.gz")
    if not target.exists():
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        with tarfile.open(path) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(partial, filter="data")
            else:
                tar.extractall(partial)
        os.replace(next(partial.iterdir()), target)
        partial.rmdir()
    for source in sorted(target.rglob("src/ggml.c"), key=lambda p: len(p.parts)):
        return source.parent.parent
    raise BuildError(
        f"{path.name} holds no ggml: ggml_src/requirements.txt must name a package that carries its source."
    )


def ggml_key(native: bool) -> str:
    cmakelists = (SOURCE / "CMakeLists.txt").read_text().split("# ---- our kernels")[0]
    return digest(*pin(), cmakelists, compiler_version(), cpu_identity() if native else "portable", platform.machine())


def build_ggml(native: bool) -> Path:
    """The installed prefix of ggml: lib/ and include/. Built at most once for each key."""
    prefix = cache_dir() / f"ggml-{ggml_key(native)}"
    with locked(prefix.with_suffix(".lock")):
        if not (prefix / "done").exists():
            print("funcgrad: compiling ggml (a minute or two, once)", file=sys.stderr)
            build = prefix.with_suffix(".build")
            options = {"FUNCGRAD_GGML_SOURCE": str(unpack()), "GGML_NATIVE": "ON" if native else "OFF"}
            cmake(build, {**options, "CMAKE_INSTALL_PREFIX": str(prefix)}, "ggml")
            run([tool("cmake", "cmake"), "--install", str(build)], "installing ggml")
            (prefix / "done").touch()
            shutil.rmtree(build, ignore_errors=True)
    return prefix


# ---- our kernels and the extension ----


def declarations(header: str) -> str:
    """A header without its preprocessor lines, as cffi wants it; plain integer constants stay."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(s for s in text.splitlines() if not s.startswith("#") or re.fullmatch(r"#define \w+ \d+\s*", s))


def write_extension_source(path: Path) -> None:
    """Let cffi write the extension's C source; an unchanged file keeps its time."""
    try:
        import cffi
    except ImportError:
        raise BuildError("cffi was not found: install it (pip install cffi).") from None
    ffi = cffi.FFI()
    ours = ("fg.h", "graph.h", "program.h", "vk.h")
    for name in ours:
        ffi.cdef(declarations((CSRC / name).read_text()))
    ffi.cdef('extern "Python" int fg_host_call(int64_t id, void *const *pointers);')  # what HOST nodes call
    ffi.set_source("funcgrad.runtime._ggml", "\n".join(f'#include "{name}"' for name in ours))
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(None):
        ffi.emit_c_code(str(path))


def extension_key(native: bool) -> str:
    parts = [p.read_bytes() for p in (Path(__file__), SOURCE / "CMakeLists.txt")]
    return digest(ggml_key(native), sysconfig.get_path("include"), source_digest(CSRC), *parts)


def build_extension(native: bool) -> Path:
    """A directory with every file of PRODUCTS, built at most once for each state of the sources."""
    key = extension_key(native)
    check()
    result = cache_dir() / f"ext-{key}"
    build = ROOT / "build" / f"{'native' if native else 'portable'}-py{sys.version_info[0]}{sys.version_info[1]}"
    source = build.with_name(f"{build.name}-cffi") / "_ggml.c"
    with locked(build.with_suffix(".lock")):
        if all((result / name).exists() for name in PRODUCTS):
            return result
        prefix = build_ggml(native)
        print("funcgrad: compiling the kernels and the extension", file=sys.stderr)
        write_extension_source(source)
        options = {
            "FUNCGRAD_GGML_SOURCE": "",
            "FUNCGRAD_GGML_PREFIX": str(prefix),
            "FUNCGRAD_CFFI_SOURCE": str(source),
            "FUNCGRAD_PYTHON_INCLUDE": sysconfig.get_path("include"),
            "FUNCGRAD_MODULE_SUFFIX": MODULE_SUFFIX,
        }
        cmake(build, options, "the kernels and the extension")
        partial = result.with_name(f".{result.name}.{os.getpid()}")
        partial.mkdir(parents=True, exist_ok=True)
        for name in PRODUCTS:
            shutil.copy2(prefix / "lib" / name if name in LIBRARIES else build / name, partial / name)
        shutil.rmtree(result, ignore_errors=True)
        os.replace(partial, result)
        prune(cache_dir())
    return result


def prune(cache: Path) -> None:
    """Drop all but the newest cached builds of our own sources."""
    kept = sorted(cache.glob("ext-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in kept[KEPT_EXTENSIONS:]:
        shutil.rmtree(old, ignore_errors=True)


def build_in_place(native: bool) -> None:
    """Put the products into funcgrad/runtime/; files that are right already are left alone."""
    stamp = RUNTIME / STAMP
    text = f"{extension_key(native)} {source_digest(CSRC)}"
    if stamp.exists() and stamp.read_text() == text and all((RUNTIME / name).exists() for name in PRODUCTS):
        stamp.touch()  # the sources are these, whatever their times
        return
    built = build_extension(native)
    for name in PRODUCTS:  # a new file under the old name: running processes keep the one they have mapped
        partial = RUNTIME / f".{name}.{os.getpid()}"
        shutil.copy2(built / name, partial)
        os.replace(partial, RUNTIME / name)
    stamp.write_text(text)


# ---- entry points ----


class FuncgradBuildHook(BuildHookInterface):
    """hatchling's hook: builds in place for an editable install, beside it for a wheel, fetches ggml for an sdist."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs beyond pyproject.toml: pip to fetch ggml, CMake where the system has none."""
        fetch = [] if archive_path().exists() else ["pip"]
        compile_tools = [] if self.target_name == "sdist" or shutil.which("cmake") else ["cmake", "ninja"]
        return fetch + compile_tools

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            self.prepare(version, build_data)
        except BuildError as error:
            raise SystemExit(f"funcgrad: {error}") from None

    def prepare(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            path = archive()
            build_data["force_include"][str(path)] = str(path.relative_to(ROOT))
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
        if version == "editable":
            build_in_place(is_native(True))
            return
        built = build_extension(is_native(False))
        for name in PRODUCTS:
            build_data["force_include"][str(built / name)] = f"funcgrad/runtime/{name}"


def test_ggml(operations: list[str]) -> None:
    """Build ggml's test-backend-ops in the cache and run it on the CPU (for all operations it takes half an hour)."""
    native = is_native(True)
    build = cache_dir() / f"ggml-tests-{ggml_key(native)}"
    options = {"FUNCGRAD_GGML_SOURCE": str(unpack()), "GGML_NATIVE": "ON" if native else "OFF"}
    with locked(build.with_suffix(".lock")):
        cmake(build, {**options, "FUNCGRAD_GGML_TESTS": "ON"}, "ggml's tests", target="test-backend-ops")
    program = next(p for p in build.rglob("test-backend-ops") if p.is_file())
    chosen = ",".join(operations) or GGML_TESTED
    if subprocess.run([str(program), "test", "-b", "CPU", "-o", chosen]).returncode:
        raise BuildError("ggml's own tests failed on the CPU; the lines above marked FAIL say where.")


def main(arguments: list[str]) -> int:
    """Run one of the commands that the module's docstring lists."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    commands: dict[str, Callable[[], object]] = {
        "": lambda: build_in_place(is_native(True)),
        "check": check,
        "fetch": archive,
        "test-ggml": lambda: test_ggml(rest),
    }
    if command not in commands or (rest and command != "test-ggml"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        commands[command]()
    except BuildError as error:
        print(f"funcgrad: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

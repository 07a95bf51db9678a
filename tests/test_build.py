"""The build script."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from funcgrad.runtime.built import is_outdated

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_ffi", ROOT / "build_ffi.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pin_is_complete(build: ModuleType) -> None:
    name, version, sha256 = build.pin()
    assert name and version and len(sha256) == 64
    assert build.archive_path().name == f"{name.replace('-', '_')}-{version}.tar.gz"


def test_declarations_keep_what_cffi_understands(build: ModuleType) -> None:
    header = (
        "/* a\n#define HIDDEN 1\n*/\n#ifndef X_H\n#define X_H\n#include <stdint.h>\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n#define N 16\n#define F(x) x\nint f(int);\n'
        "#ifdef __cplusplus\n}\n#endif\n#endif\n"
    )
    assert build.declarations(header).split("\n") == ["", "#define N 16", "int f(int);"]


def test_a_missing_compiler_is_one_sentence() -> None:
    env = {**os.environ, "CC": "/nonexistent/cc"}
    done = subprocess.run([sys.executable, "build_ffi.py", "check"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "install a C and C++ compiler" in done.stderr


def test_keys_tell_builds_apart(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    native = build.ggml_key(True)
    assert native != build.ggml_key(False) and native == build.ggml_key(True)
    monkeypatch.setattr(build, "cpu_identity", lambda: "flags: another CPU")
    assert build.ggml_key(True) != native
    monkeypatch.setattr(build, "pin", lambda: ("libggml-python", "0.0", "0" * 64))
    assert build.ggml_key(False) != native
    assert build.digest("ab", "c") != build.digest("a", "bc")


def test_old_builds_of_our_sources_go(build: ModuleType, tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"ext-{i}").mkdir()
        os.utime(tmp_path / f"ext-{i}", (i, i))
    (tmp_path / "ggml-0").mkdir()
    build.prune(tmp_path)
    kept = {p.name for p in tmp_path.iterdir()}
    assert kept == {"ggml-0", *(f"ext-{i}" for i in range(12 - build.KEPT_EXTENSIONS, 12))}


def test_a_second_build_waits_for_the_first(build: ModuleType, tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with build.locked(tmp_path / "lock"):
            order.append("second")

    with build.locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_build_knows_when_its_sources_change(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the files' contents, not by their times; an installed wheel has nothing to compare."""
    csrc, products = tmp_path / "csrc", tmp_path / "products"
    csrc.mkdir()
    products.mkdir()
    for path in [csrc / "a.c", csrc / "b.h", *[products / name for name in build.PRODUCTS]]:
        path.write_text(path.name)
    monkeypatch.setattr(build, "RUNTIME", tmp_path)
    monkeypatch.setattr(build, "CSRC", csrc)
    monkeypatch.setattr(build, "extension_key", lambda native: f"key-{build.source_digest(csrc)}")
    monkeypatch.setattr(build, "build_extension", lambda native: products)
    assert not is_outdated(tmp_path)  # a wheel
    build.build_in_place(True)
    later = (tmp_path / ".built").stat().st_mtime_ns

    def at_a_later_time(path: Path) -> None:
        nonlocal later
        later += 10**9
        os.utime(path, ns=(later, later))

    assert not is_outdated(tmp_path)
    at_a_later_time(csrc / "a.c")
    assert not is_outdated(tmp_path)
    (csrc / "a.c").write_text("another")
    at_a_later_time(csrc / "a.c")
    assert is_outdated(tmp_path)
    build.build_in_place(True)
    assert not is_outdated(tmp_path)
    (csrc / "b.h").rename(csrc / "c.h")
    at_a_later_time(csrc)
    assert is_outdated(tmp_path)
    (tmp_path / ".built").write_text("key-without-a-digest")
    at_a_later_time(csrc)
    assert not is_outdated(tmp_path)


@pytest.mark.ggml
def test_an_outdated_extension_says_how_to_build_it() -> None:
    program = """
from funcgrad.runtime import built
built.is_outdated = lambda runtime: runtime == built.RUNTIME
import funcgrad as fg
print(fg.jit(lambda x: x + 1.0)(fg.numpy.ones(2)))
"""
    env = {**os.environ, "FUNCGRAD_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "[2. 2.]\n", done.stderr
    assert done.stderr.count("run `python build_ffi.py`") == 1 and "older than its sources" in done.stderr

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

"""vk_api.h against the real Vulkan header, and the Vulkan runtime on a driver whose calls fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from vulkan_device import Runtime

TESTS = Path(__file__).parent
CSRC = TESTS.parent / "funcgrad" / "runtime" / "csrc"

NEWER = {  # what old headers do not have yet
    "BFLOAT16|Bfloat16": "VK_KHR_shader_bfloat16",
    "MATRIX_2|Matrix2": "VK_NV_cooperative_matrix2",
    "COOPERATIVE_MATRIX|CooperativeMatrix|_SCOPE_|_COMPONENT_": "VK_KHR_cooperative_matrix",
}
UNNAMED = re.compile(r"spare\d*|all|sparseProperties|minImageTransferGranularity")  # members of our own making


def header_check() -> str:
    """A C++ file that compiles when vk_api.h agrees with <vulkan/vulkan.h>."""
    declared = "".join([(CSRC / name).read_text() for name in ("vk_constants.h", "vk_structs.h")])
    code = re.sub(r"/\*.*?\*/", "", declared, flags=re.DOTALL)
    lines = ["#include <cstddef>", "#include <cstdint>", "#include <stddef.h>", "#include <stdint.h>"]
    lines += ["namespace ours {", '#include "vk_api.h"', "}", "#include <vulkan/vulkan.h>"]

    def claim(name: str, condition: str) -> None:
        guard = next((g for pattern, g in NEWER.items() if re.search(pattern, name)), "VK_VERSION_1_2")
        lines.extend([f"#ifdef {guard}", f'static_assert({condition}, "{name}");', "#endif"])

    structs = re.findall(r"^struct (\w+) \{\n(.*?)^\};", code, flags=re.DOTALL | re.MULTILINE)
    values = re.findall(r"\b(VK_\w+) = ", code)
    assert len(structs) > 40 and len(values) > 80
    for name, body in structs:
        claim(name, f"sizeof(ours::{name}) == sizeof(::{name})")
        for member in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            if not UNNAMED.fullmatch(member):
                same = f"offsetof(ours::{name}, {member}) == offsetof(::{name}, {member})"
                size = f"sizeof(ours::{name}::{member}) == sizeof(::{name}::{member})"
                claim(f"{name}.{member}", f"{same} && {size}")
    for value in values:
        claim(value, f"int64_t(ours::{value}) == int64_t(::{value})")
    return "\n".join(lines)


def test_the_header_agrees_with_vulkans(tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    base = [compiler, "-std=c++17", "-fsyntax-only", "-I", str(CSRC)]
    (tmp_path / "there.cpp").write_text("#include <vulkan/vulkan.h>\n")
    if subprocess.run([*base, str(tmp_path / "there.cpp")], capture_output=True).returncode:
        pytest.skip("vulkan/vulkan.h is not installed (Debian, Ubuntu: apt install libvulkan-dev)")
    path = tmp_path / "check.cpp"
    path.write_text(header_check())
    done = subprocess.run([*base, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it replaces the loader by LD_LIBRARY_PATH")
def test_every_call_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("FUNCGRAD_VULKAN_SOFTWARE", "1")
    Runtime()  # skips where there is no device
    loaded = {s.split()[-1] for s in Path("/proc/self/maps").read_text().splitlines() if "/libvulkan.so" in s}
    source = TESTS / "failing_vulkan.c"
    library = tmp_path / "libvulkan.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("REAL_VULKAN_LOADER", loaded.pop())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    program = [sys.executable, str(TESTS / "vulkan_failures.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr

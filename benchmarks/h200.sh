#!/bin/sh
# Vulkan on a machine with an NVIDIA driver and nothing else of ours: packs what has to go there, and runs it there.
#   benchmarks/h200.sh pack    here, after python build_ffi.py: fills build/h200 (libraries, wheels, loader)
#   benchmarks/h200.sh run     there, in the same tree with build/h200: prints the tests' results and JSON lines
# LIBRARIES (funcgrad, jax, torch, torch-compile), PRECISIONS and WORKLOADS choose what gpu_bench.py runs.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
at="$root/build/h200"
python=${PYTHON:-python3}

pack() {
    mkdir -p "$at/wheels" "$at/loader"
    XZ_OPT=-1 tar -C "$root" -cJf "$at/libraries.tar.xz" $(cd "$root" && ls funcgrad/runtime/*.so)
    # Python's version there; --no-deps, so each package is named
    "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version "${THERE:-3.12}" \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 -d "$at/wheels" cffi pycparser numpy scipy-openblas32 typing_extensions pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers ml_dtypes optax absl-py
    (cd "$at/loader" && apt-get download -qq libvulkan1 libegl1 libglvnd0 libopengl0 libgl1 libglx0 libgles2)
    du -sh "$at"
}

run() {
    # the driver's Vulkan library needs the GL dispatch libraries too
    ldconfig -p | grep -q libvulkan.so.1 || for f in "$at"/loader/*.deb; do dpkg -x "$f" /; done
    ldconfig
    icd=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
    [ -z "${VK_DRIVER_FILES:-}" ] && [ -e "$icd" ] && export VK_DRIVER_FILES="$icd"
    egl=/usr/local/nvidia/share/glvnd/egl_vendor.d/10_nvidia.json
    [ -z "${__EGL_VENDOR_LIBRARY_FILENAMES:-}" ] && [ -e "$egl" ] && export __EGL_VENDOR_LIBRARY_FILENAMES="$egl"
    site=$(mktemp -d)
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$at"/wheels/*.whl
    export PYTHONPATH="$root:$site" PYTHONUNBUFFERED=1 BENCH_WAIT="${BENCH_WAIT:-0}"
    tar -C "$root" -xJf "$at/libraries.tar.xz"
    cd "$root"
    timeout "${TEST_SECONDS:-200}" "$python" -m pytest -q -p no:cacheprovider tests/test_primitives.py tests/test_vulkan.py tests/test_vulkan_products.py -k vulkan 2>&1 | tail -n 30
    cd benchmarks
    for library in ${LIBRARIES:-funcgrad}; do
        for precision in ${PRECISIONS:-float32 tensorfloat32}; do
            timeout "${BENCH_SECONDS:-100}" "$python" gpu_bench.py "$library" "$precision" ${WORKLOADS:-W1 W2 W3 W4 W5 W6 W9 W10 large-gpt} ||
                echo "{\"peer\": \"$library $precision\", \"error\": \"failed\"}"
        done
    done
}

case "${1:-}" in
    pack) pack ;;
    run) run ;;
    *) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac

#!/bin/sh
# Finds or fetches what ggml's Vulkan backend is compiled with: Vulkan headers 1.4 or so, glslc, SPIRV headers, libvulkan.
#   toolchain.sh FOLDER    prints the CMake arguments, one a line; says what is missing otherwise
# Where the system's packages suffice (Debian 13, Ubuntu 24.04 with libvulkan-dev glslc spirv-headers) it prints none.
# Elsewhere on Debian and x86-64 it unpacks the packages of the next suite into FOLDER, with the system's own archive and
# apt; nothing is installed. The newer glslc needs the newer C library, so it runs with that one.
set -eu
fail() { echo "vulkan: $*" >&2; exit 1; }

lib=$(ls /usr/lib/*/libvulkan.so /usr/lib64/libvulkan.so /usr/lib/*/libvulkan.so.1 /usr/lib64/libvulkan.so.1 2>/dev/null | head -n 1)
[ -n "$lib" ] || fail "libvulkan.so.1 was not found: install the loader (Debian and Ubuntu: apt install libvulkan1)."

header=/usr/include/vulkan/vulkan_core.h
version=$(sed -n 's/^#define VK_HEADER_VERSION \([0-9]*\).*/\1/p' "$header" 2>/dev/null || true)
if [ "${version:-0}" -ge 275 ] && command -v glslc > /dev/null && ls /usr/share/cmake/SPIRV-Headers /usr/lib/*/cmake/SPIRV-Headers > /dev/null 2>&1; then
    exit 0
fi

missing="install Vulkan headers 1.3.275 or newer, glslc and SPIRV headers (Debian 13, Ubuntu 24.04: apt install libvulkan-dev glslc spirv-headers)."
sources=/etc/apt/sources.list.d/debian.sources
[ "$(uname -m)" = x86_64 ] && [ -r "$sources" ] && command -v apt-get > /dev/null && command -v dpkg > /dev/null || fail "$missing"
to=$(mkdir -p "$1" && cd "$1" && pwd)
if [ ! -e "$to/done" ]; then
    uri=$(awk '/^URIs:/{print $2; exit}' "$sources")
    mkdir -p "$to/lists/partial" "$to/cache/archives/partial" "$to/debs" "$to/root"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri trixie main" > "$to/sources.list"
    newer() {
        apt-get -oDir::Etc::SourceList="$to/sources.list" -oDir::Etc::SourceParts=/dev/null -oDir::State::Lists="$to/lists" \
            -oDir::Cache="$to/cache" -qq "$@" >&2
    }
    newer update || fail "the package lists of Debian 13 could not be read; $missing"
    (cd "$to/debs" && newer download libvulkan-dev spirv-headers glslc libshaderc1 libc6 libstdc++6 libgcc-s1) ||
        fail "the packages of Debian 13 could not be fetched; $missing"
    for d in "$to"/debs/*.deb; do dpkg -x "$d" "$to/root"; done
    loader=$(find "$to/root" -name ld-linux-x86-64.so.2 | head -n 1)
    libs="$to/root/usr/lib/x86_64-linux-gnu:$to/root/lib/x86_64-linux-gnu"
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$loader" "$libs" "$to/root/usr/bin/glslc" > "$to/glslc"
    chmod +x "$to/glslc"
    "$to/glslc" --version > /dev/null || fail "glslc of Debian 13 does not run here; $missing"
    rm -rf "$to/debs" "$to/lists" "$to/cache"
    touch "$to/done"
fi
echo "Vulkan_INCLUDE_DIR=$to/root/usr/include"
echo "Vulkan_GLSLC_EXECUTABLE=$to/glslc"
echo "Vulkan_LIBRARY=$lib"
echo "CMAKE_PREFIX_PATH=$to/root/usr"

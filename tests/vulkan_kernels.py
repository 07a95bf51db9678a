"""A SPIR-V kernel assembled by hand, for tests of the Vulkan runtime: out[i] = a[i] + b[i]."""

from __future__ import annotations

import struct

LOCAL = 64  # invocations of a group


def add_kernel(dtype: str = "float", name: str = "main") -> bytes:
    """The kernel; its push constant is the address of three addresses: a, b, out."""
    words: list[int] = [0x07230203, 0x00010300, 0, 64, 0]  # magic, SPIR-V 1.3, generator, bound, schema

    def op(code: int, *operands: int) -> None:
        words.extend([(len(operands) + 1) << 16 | code, *operands])

    def text(s: str) -> list[int]:
        data = s.encode() + b"\0"
        data += b"\0" * (-len(data) % 4)
        return list(struct.unpack(f"<{len(data) // 4}I", data))

    void, function, uint, vec3, number, array, holder, p_holder, table, p_table, push, p_push = range(1, 13)
    p_push_table, p_table_holder, p_number, p_vec3, zero, one, two, gid, constants, main, label = range(13, 24)
    physical, push_constant, input_ = 5349, 9, 1
    op(17, 1)  # capability Shader
    op(17, 5347)  # capability PhysicalStorageBufferAddresses
    op(10, *text("SPV_KHR_physical_storage_buffer"))
    op(14, 5348, 1)  # PhysicalStorageBuffer64, GLSL450
    op(15, 5, main, *text(name), gid)  # entry point, GLCompute
    op(16, main, 17, LOCAL, 1, 1)  # LocalSize
    op(71, gid, 11, 28)  # BuiltIn GlobalInvocationId
    op(71, array, 6, 4)  # ArrayStride
    for block in (holder, table, push):
        op(71, block, 2)  # Block
    op(72, holder, 0, 35, 0)  # Offset
    op(72, push, 0, 35, 0)
    for i in range(3):
        op(72, table, i, 35, 8 * i)
    op(19, void)
    op(33, function, void)
    op(21, uint, 32, 0)
    op(23, vec3, uint, 3)
    op(22, number, 32) if dtype == "float" else op(21, number, 32, 1)
    op(29, array, number)
    op(30, holder, array)
    op(32, p_holder, physical, holder)
    op(30, table, p_holder, p_holder, p_holder)
    op(32, p_table, physical, table)
    op(30, push, p_table)
    op(32, p_push, push_constant, push)
    op(32, p_push_table, push_constant, p_table)
    op(32, p_table_holder, physical, p_holder)
    op(32, p_number, physical, number)
    op(32, p_vec3, input_, vec3)
    for i, constant in enumerate((zero, one, two)):
        op(43, uint, constant, i)
    op(59, p_vec3, gid, input_)
    op(59, p_push, constants, push_constant)
    op(54, void, main, 0, function)
    op(248, label)
    last = label
    aligned = 2

    def new() -> int:
        nonlocal last
        last += 1
        return last

    where, i, chain, base = new(), new(), new(), new()
    op(61, vec3, where, gid)
    op(81, uint, i, where, 0)
    op(65, p_push_table, chain, constants, zero)
    op(61, p_table, base, chain)
    elements = []
    for index in (zero, one, two):
        slot, pointer, element = new(), new(), new()
        op(65, p_table_holder, slot, base, index)
        op(61, p_holder, pointer, slot, aligned, 8)
        op(65, p_number, element, pointer, zero, i)
        elements.append(element)
    a, b, total = new(), new(), new()
    op(61, number, a, elements[0], aligned, 4)
    op(61, number, b, elements[1], aligned, 4)
    op(129 if dtype == "float" else 128, number, total, a, b)
    op(62, elements[2], total, aligned, 4)
    op(253)
    op(56)
    assert last < words[3]
    return struct.pack(f"<{len(words)}I", *words)

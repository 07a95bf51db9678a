"""Kernels for Vulkan devices: SPIR-V made in Python from the same nodes that the CPU's kernels are made from."""

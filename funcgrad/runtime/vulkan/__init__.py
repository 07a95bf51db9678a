"""Vulkan devices: the plan that the CPU runs, run by kernels in SPIR-V; any GPU with a Vulkan 1.2 driver will do."""

from funcgrad.runtime.vulkan.device import VulkanDevice, found

__all__ = ["VulkanDevice", "found"]

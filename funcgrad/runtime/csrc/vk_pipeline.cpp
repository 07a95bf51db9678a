// Kernels: SPIR-V modules, looked through before the driver sees them.
#include <algorithm>
#include <cstring>

#include "vk_internal.h"

namespace fgv {
namespace {

// ---- SPIR-V: what the driver would not survive ----
constexpr uint32_t MAGIC = 0x07230203, HEADER_WORDS = 5;
constexpr uint32_t OP_ENTRY_POINT = 15, OP_EXECUTION_MODE = 16, OP_FUNCTION = 54;
constexpr uint32_t GL_COMPUTE = 5, LOCAL_SIZE = 17;

struct Local {
    uint32_t size[3] = {0, 0, 0};
};

// The local size of the module's kernel; throws when the words cannot be a module with a compute entry point "main".
Local inspect(const uint32_t *words, int64_t n) {
    if (n < HEADER_WORDS || words[0] != MAGIC)
        throw std::runtime_error("not a SPIR-V module: it must begin with 0x07230203");
    bool main = false, mode = false, function = false;
    uint32_t entry = 0;
    Local local;
    for (int64_t at = HEADER_WORDS; at < n;) {
        const uint32_t count = words[at] >> 16, op = words[at] & 0xffff;
        if (count == 0 || count > n - at)
            throw std::runtime_error("not a SPIR-V module: an instruction goes beyond its end");
        const uint32_t *operand = words + at + 1;
        function = function || op == OP_FUNCTION;
        if (op == OP_ENTRY_POINT && count >= 5 && operand[0] == GL_COMPUTE && !memcmp(operand + 2, "main\0\0\0", 8)) {
            main = true;
            entry = operand[1];
        }
        if (op == OP_EXECUTION_MODE && count >= 6 && operand[0] == entry && operand[1] == LOCAL_SIZE) {
            mode = true;
            std::copy_n(operand + 2, 3, local.size);
        }
        at += count;
    }
    if (!main || !function) throw std::runtime_error("the SPIR-V module has no compute entry point \"main\"");
    if (!mode) throw std::runtime_error("the SPIR-V module has no LocalSize");
    return local;
}

void check_local(const fgv_device *d, const Local &local, int subgroup) {
    const auto &most = d->candidate->properties.limits;
    uint64_t all = 1;
    for (int i = 0; i < 3; ++i) {
        if (local.size[i] == 0 || local.size[i] > most.maxComputeWorkGroupSize[i]) {
            throw std::runtime_error("the device's groups are smaller than the kernel's LocalSize");
        }
        all *= local.size[i];
    }
    if (all > most.maxComputeWorkGroupInvocations)
        throw std::runtime_error("the device's groups are smaller than the kernel's LocalSize");
    if (subgroup > 0 && local.size[0] % uint32_t(subgroup)) {
        throw std::runtime_error("LocalSize must be a multiple of the subgroup size");
    }
}

void check_subgroup(const fgv_device *d, int subgroup) {
    const int64_t size = d->limits[0], least = d->limits[16], most = d->limits[17];
    const bool fits =
        d->size_control ? subgroup >= least && subgroup <= most && !(subgroup & (subgroup - 1)) : subgroup == size;
    if (!fits) {
        throw std::runtime_error("the device's subgroups have " + std::to_string(least) + " to " +
            std::to_string(most) + " invocations, not " + std::to_string(subgroup));
    }
}

struct Module {
    fgv_device *d;
    VkShaderModule handle = nullptr;
    ~Module() {
        if (handle) d->vkDestroyShaderModule(d->handle, handle, nullptr);
    }
};

void compile(Pipeline &pipeline, const uint32_t *spirv, int64_t n_words, int subgroup) {
    fgv_device *d = pipeline.device;
    Module module{d};
    VkShaderModuleCreateInfo code{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, size_t(n_words) * 4, spirv};
    check(d, d->vkCreateShaderModule(d->handle, &code, nullptr, &module.handle), "vkCreateShaderModule");
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr, uint32_t(subgroup)};
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.pNext = subgroup > 0 && d->size_control ? &size : nullptr;
    if (subgroup > 0 && d->full_subgroups)
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module.handle;
    info.stage.pName = "main";
    info.layout = d->layout;
    check(d, d->vkCreateComputePipelines(d->handle, d->cache, 1, &info, nullptr, &pipeline.handle),
        "vkCreateComputePipelines");
}

} // namespace
} // namespace fgv

using namespace fgv;

fgv_pipeline *fgv_pipeline_new(
    fgv_device *d, const uint32_t *spirv, int64_t n_words, int subgroup, char *err, int err_size) {
    return guarded<fgv_pipeline *>(nullptr, err, err_size, [&] {
        alive(d);
        const Local local = inspect(spirv, n_words);
        if (subgroup > 0) check_subgroup(d, subgroup);
        check_local(d, local, subgroup);
        auto pipeline = std::make_unique<fgv_pipeline>();
        pipeline->shared = std::make_shared<Pipeline>(d);
        compile(*pipeline->shared, spirv, n_words, subgroup);
        return pipeline.release();
    });
}

void fgv_pipeline_free(fgv_pipeline *pipeline) {
    if (pipeline && !in_forked_child()) delete pipeline;
}

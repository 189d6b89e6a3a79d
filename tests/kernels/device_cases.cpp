// Devices for tests of ops: see device_cases.h.
#include "tests/kernels/device_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <span>

#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/opencl/opencl_device.h"
#include "kernels/reference/reference_device.h"

namespace lamina {
namespace {

/// Where two runs first differ; empty when all bits are equal.
std::string difference(const std::vector<float>& got, const std::vector<float>& want, size_t width) {
  if (got.size() != want.size()) return fmt::format("{} values, expected {}", got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0)
      return fmt::format("row {} column {}: got {} ({:a}), expected {} ({:a})", i / width, i % width, got[i], got[i],
                         want[i], want[i]);
  return "";
}

/// Runs a step for the best logits only: they must be the reference's.
void expect_reference_best(Executable& tried, Executable& reference, Step step, uint32_t n_best) {
  step.n_best = n_best;
  tried.run(step);
  reference.run(step);
  for (uint32_t row = 0; row < step.outputs.size(); ++row) {
    const std::span<const TokenLogit> got = tried.best(row), want = reference.best(row);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].token, want[i].token) << "rank " << i << " of row " << row << ", " << n_best << " asked for";
      ASSERT_EQ(std::memcmp(&got[i].logit, &want[i].logit, sizeof(float)), 0) << "logit of rank " << i;
    }
    ASSERT_EQ(tried.argmax(row), reference.argmax(row));
  }
}

/// What each op of a step leaves, as a trace sees it.
std::vector<std::vector<float>> traced(Executable& executable, const Program& program, const Step& step) {
  std::vector<std::vector<float>> seen;
  executable.trace(step, [&](size_t index) {
    for (const Place& place : places_of(program.ops[index])) seen.push_back(executable.read(place));
    return true;
  });
  return seen;
}

/// Traces a step: in every place that an op writes the bits must be the reference's.
void expect_reference_trace(Executable& tried, Executable& reference, const Program& program, const Step& step) {
  const auto got = traced(tried, program, step), want = traced(reference, program, step);
  ASSERT_EQ(got.size(), want.size());
  size_t i = 0;
  for (const Op& op : program.ops)
    for (const Place& place : places_of(op)) {
      ASSERT_EQ(difference(got[i], want[i], width_of(program, place)), "")
          << to_text(program, op) << "\n"
          << name_of(program, place) << ", " << step.token.size() << " rows";
      ++i;
    }
}

}  // namespace

void PrintTo(const DeviceCase& device, std::ostream* out) { *out << device.name; }

std::vector<DeviceCase> devices() {
  std::vector<DeviceCase> cases;
  for (const std::string& isa : cpu_isas())
    cases.push_back({"cpu_" + isa, {1, 2, 3}, [isa](int n_threads) {
                       return make_cpu_device({.n_threads = n_threads, .isa = isa});
                     }});
  for (const int lanes : {16, 1})
    cases.push_back({fmt::format("opencl_w{}", lanes), {1}, [lanes](int n_threads) {
                       return make_opencl_device(
                           {.lanes = lanes, .n_threads = n_threads, .kernel_cache = kernel_cache_of_tests()});
                     }});
  return cases;
}

std::string missing_opencl() { return opencl_devices().empty() ? "there is no OpenCL device" : ""; }

bool opencl_is_required() {
  const char* value = std::getenv("LAMINA_TEST_OPENCL");
  return value != nullptr && std::string(value) == "required";
}

std::string kernel_cache_of_tests() {
  return (std::filesystem::path(LAMINA_BINARY).parent_path() / "test-cache").string();
}

std::vector<Step> steps_of_all_sizes(int32_t n_vocab) {
  std::vector<Step> steps;
  for (size_t n : kTokenCounts) steps.push_back(one_sequence(some_tokens(n, n_vocab)));
  return steps;
}

void expect_reference_bits(const DeviceCase& device, const Program& program, const TinyModel& model,
                           const std::vector<Step>& steps, uint32_t n_pages, KvType kv_type) {
  if (device.is_opencl()) LAMINA_NEEDS_OPENCL();
  if (device.is_opencl() && kv_type != KvType::kF16) {
    EXPECT_THROW(compile(*device.make(1), program, model, n_pages, kv_type), Error);
    return;
  }
  const std::unique_ptr<Executable> reference = compile(*make_reference_device(), program, model, n_pages, kv_type);
  std::vector<std::unique_ptr<Device>> made;
  std::vector<std::unique_ptr<Executable>> tried;
  for (int n_threads : device.n_threads) {
    made.push_back(device.make(n_threads));
    tried.push_back(compile(*made.back(), program, model, n_pages, kv_type));
  }
  for (const Step& step : steps) {
    const std::vector<float> want = run(*reference, step);
    for (size_t i = 0; i < tried.size(); ++i) {
      const std::string where = fmt::format("{} threads, {} rows", device.n_threads[i], step.token.size());
      ASSERT_EQ(difference(run(*tried[i], step), want, program.n_vocab), "") << where;
      for (uint32_t row = 0; row < step.outputs.size(); ++row)
        ASSERT_EQ(tried[i]->argmax(row), reference->argmax(row)) << where << ", argmax of row " << row;
    }
    for (const uint32_t n_best : {1u, 7u}) expect_reference_best(*tried.back(), *reference, step, n_best);
    expect_reference_trace(*tried.back(), *reference, program, step);
  }
}

}  // namespace lamina

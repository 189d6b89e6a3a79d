// What the tests of ops run on: every device present, each against the reference. In: a program, a tiny model and
// steps. Out: a failed test that names the first value whose bits differ.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/tiny_model.h"

namespace lamina {

struct DeviceCase {
  std::string name;            ///< "cpu_avx2", "opencl_w16"
  std::vector<int> n_threads;  ///< thread counts to try
  std::function<std::unique_ptr<Device>(int n_threads)> make;
  bool is_opencl() const { return name.starts_with("opencl"); }
};

std::vector<DeviceCase> devices();

/// Why no OpenCL device can be had, empty when one can. Tests are skipped then, but fail where one is required: where
/// LAMINA_TEST_OPENCL=required stands in the environment, as tools/test.sh puts it there.
std::string missing_opencl();
bool opencl_is_required();

/// Ends a test, or a function of it, that needs an OpenCL device where there is none.
#define LAMINA_NEEDS_OPENCL()                                                 \
  if (const std::string reason = lamina::missing_opencl(); !reason.empty()) { \
    if (lamina::opencl_is_required()) FAIL() << reason;                       \
    GTEST_SKIP() << reason;                                                   \
  }

/// Where tests keep compiled OpenCL kernels: in the build folder, for all tests together.
std::string kernel_cache_of_tests();

/// How gtest prints a case.
void PrintTo(const DeviceCase& device, std::ostream* out);

/// Rows of a step that tests of row-wise ops try: 1, the few-row kernels, and around tiles of 12 tokens.
constexpr size_t kTokenCounts[] = {1, 2, 3, 5, 8, 12, 13, 25};

/// A step of each of kTokenCounts, on the rows of a table of `n_vocab`.
std::vector<Step> steps_of_all_sizes(int32_t n_vocab);

/// Runs the steps in turn on the device, once for each thread count, and on the reference: logits and argmax must be
/// equal in every bit, and in a trace all that the ops write.
void expect_reference_bits(const DeviceCase& device, const Program& program, const TinyModel& model,
                           const std::vector<Step>& steps, uint32_t n_pages = 1, KvType kv_type = KvType::kF16);

}  // namespace lamina

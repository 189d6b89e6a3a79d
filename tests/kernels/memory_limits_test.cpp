// Memory limits from trees of files as Linux shows them. In: a small /proc and /sys/fs/cgroup. Out: the figures.
#include "kernels/memory_limits.h"

#include <gtest/gtest.h>

#include "gguf/error.h"
#include "tests/gguf/file_builder.h"

namespace lamina {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest() {
    write("proc/meminfo",
          "MemTotal:       1048576 kB\nMemFree:  1 kB\nMemAvailable:    524288 kB\nHugePages_Total: 0\n");
  }
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }
  void expect(uint64_t total, uint64_t available) {
    const MemoryLimits limits = memory_limits(folder_.path(""));
    EXPECT_EQ(limits.total, total * kMib);
    EXPECT_EQ(limits.available, available * kMib);
  }
  gguf::TempFolder folder_;
};

TEST_F(MemoryLimitsTest, AreTheMachinesWithoutACgroup) { expect(1024, 512); }

TEST_F(MemoryLimitsTest, FollowTheOwnCgroupAndItsAncestors) {
  write("proc/self/cgroup", "4:memory:/old\n0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  expect(1024, 512);
  write("sys/fs/cgroup/a/b/memory.max", "419430400\n");  // 400 MiB
  write("sys/fs/cgroup/a/b/memory.current", "209715200\n");
  expect(400, 200);
  // Pages of files in use can be dropped: 150 of the 200 MiB.
  write("sys/fs/cgroup/a/b/memory.stat", "anon 52428800\nactive_file 52428800\ninactive_file 104857600\n");
  expect(400, 350);
  write("sys/fs/cgroup/a/memory.max", "314572800\n");  // 300 MiB for b and its neighbours together
  write("sys/fs/cgroup/a/memory.current", "262144000\n");
  expect(300, 50);
  write("sys/fs/cgroup/a/memory.current", "524288000\n");  // more than allowed: nothing is left
  expect(300, 0);
  write("sys/fs/cgroup/memory.max", "104857600\n");  // the root's, as a container sees it
  expect(100, 0);
}

TEST_F(MemoryLimitsTest, OfAContainerStandAtTheRoot) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "104857600\n");
  write("sys/fs/cgroup/memory.current", "1048576\n");
  expect(100, 99);
}

TEST(RequireMemory, NamesBothFigures) {
  EXPECT_NO_THROW(require_memory(1, "a byte"));
  try {
    require_memory(UINT64_MAX, "everything");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 5);
    EXPECT_TRUE(std::string(error.what()).starts_with("17592186044415 MiB of memory are needed for everything, but "))
        << error.what();
  }
}

}  // namespace
}  // namespace lamina

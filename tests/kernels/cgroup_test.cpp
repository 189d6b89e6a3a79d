// Quotas of CPU time from trees of files as Linux shows them. In: a small /proc and /sys/fs/cgroup. Out: processors,
// threads.
#include "kernels/cgroup.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/pool.h"
#include "tests/gguf/file_builder.h"

namespace lamina {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

class CgroupTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }
  double processors() const { return cgroup_processors(folder_.path("")); }
  gguf::TempFolder folder_;
};

TEST_F(CgroupTest, WithoutQuotasAllProcessorsCount) {
  EXPECT_EQ(processors(), kNoQuota);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu.max", "nonsense\n");
  EXPECT_EQ(processors(), kNoQuota);
  EXPECT_EQ(cpu_threads(folder_.path("")), cpu_threads(folder_.path("no/such/root")));
}

TEST_F(CgroupTest, TheLeastQuotaOfAllAncestorsCounts) {
  write("proc/self/cgroup", "4:cpu:/old\n0::/a/b/c\n");
  write("sys/fs/cgroup/old/cpu.max", "100000 100000\n");  // of version 1: not the process's
  write("sys/fs/cgroup/a/x/cpu.max", "100000 100000\n");  // of a neighbour
  EXPECT_EQ(processors(), kNoQuota);
  write("sys/fs/cgroup/cpu.max", "3200000 100000\n");
  EXPECT_EQ(processors(), 32);
  write("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "800000 50000\n");
  EXPECT_EQ(processors(), 16);
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(processors(), 1.5);
  write("sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n");
  EXPECT_EQ(processors(), 0.5);
}

TEST_F(CgroupTest, ThreadsFollowTheQuotaOfAnAncestor) {
  write("proc/self/cgroup", "0::/a/b\n");
  for (const char* quota : {"100000 100000", "20000 100000"}) {  // less than one processor is one thread
    write("sys/fs/cgroup/a/cpu.max", quota);
    EXPECT_EQ(cpu_threads(folder_.path("")), 1) << quota;
  }
}

}  // namespace
}  // namespace lamina

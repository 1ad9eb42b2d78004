#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

#include "base/test_machine.h"

namespace gannet {
namespace {

constexpr const char* kVersion2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1 =
    "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(CpuQuota, NoFilesAreNoLimit) {
  const TestMachine machine;
  EXPECT_EQ(cpu_quota(machine.root()), std::nullopt);
}

TEST(CpuQuota, Version2) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/system.slice/gannet.service\n");
  machine.write("sys/fs/cgroup/system.slice/gannet.service/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), 1.5);
  machine.write("sys/fs/cgroup/system.slice/gannet.service/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), std::nullopt);
}

TEST(CpuQuota, TheLeastLimitOfTheGroupsAroundHolds) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/outer/middle/inner\n");
  machine.write("sys/fs/cgroup/outer/cpu.max", "200000 100000\n");
  machine.write("sys/fs/cgroup/outer/middle/cpu.max", "max 100000\n");
  machine.write("sys/fs/cgroup/outer/middle/inner/cpu.max", "800000 100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), 2.0);
}

TEST(CpuQuota, Version1BesideAnEmptyVersion2) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", kVersion1);
  machine.write("proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/box\n0::/\n");
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), 3.0);
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(machine.root()), std::nullopt);
}

TEST(CpuQuota, AContainersOwnGroupIsTheRootOfItsMount) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", "30 23 0:26 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  for (const char* group : {"/docker/ab", "/", "/docker/ab/inner"}) {
    machine.write("proc/self/cgroup", std::string("4:cpu,cpuacct:") + group + "\n");
    EXPECT_EQ(cpu_quota(machine.root()), 0.5) << group;
  }
}

TEST(CpuQuota, AMountOfAnotherGroupDoesNotCount) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", std::string(kVersion2) + "40 23 0:26 /docker/ab /box rw - cgroup2 cgroup2 rw\n");
  machine.write("proc/self/cgroup", "0::/user.slice\n");
  machine.write("sys/fs/cgroup/user.slice/cpu.max", "400000 100000\n");
  machine.write("box/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), 4.0);
}

TEST(CpuQuota, DamagedFilesAreNoLimit) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", std::string("nonsense\n - \n") + kVersion2);
  machine.write("proc/self/cgroup", "nonsense\n0::\n0::/a\n");
  machine.write("sys/fs/cgroup/a/cpu.max", "100000\n");
  EXPECT_EQ(cpu_quota(machine.root()), std::nullopt);
}

TEST(Cores, ProcessorsOfOneCoreCountOnceAndComeLast) {
  const TestMachine machine;
  for (int cpu = 0; cpu < 4; ++cpu) {  // 0 and 2 are one core, 1 and 3 the other
    machine.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
                  cpu % 2 == 0 ? "0,2\n" : "1,3\n");
  }
  EXPECT_EQ(count_cores({0, 1, 2, 3}, machine.root()), 2);
  EXPECT_EQ(cores_first({0, 2, 1, 3}, machine.root()), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(cores_first({2, 3}, machine.root()), (std::vector<int>{2, 3}));
  EXPECT_EQ(count_cores({0, 2}, machine.root()), 1);
}

TEST(Cores, WithoutTopologyEveryProcessorIsOne) {
  const TestMachine machine;
  EXPECT_EQ(count_cores({3, 5, 8}, machine.root()), 3);
  EXPECT_EQ(cores_first({3, 5, 8}, machine.root()), (std::vector<int>{3, 5, 8}));
}

TEST(UsableProcessors, AreAtLeastOneAndAtMostTheMachines) {
  EXPECT_GE(usable_processors(), 1);
  EXPECT_LE(usable_processors(), static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

TEST(UsableProcessors, FollowTheAffinityMask) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(allowed_processors().back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_processors().size(), 1);
    EXPECT_EQ(usable_processors(), 1);
  }).join();
}

}  // namespace
}  // namespace gannet

#include "base/memory_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "base/test_machine.h"

namespace gannet {
namespace {

constexpr const char* kMeminfo = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nBuffers: 7 kB\n";
constexpr const char* kVersion2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

TEST(MemoryLimits, NoFilesTellNothing) {
  const TestMachine machine;
  EXPECT_EQ(available_memory(machine.root()), std::nullopt);
  EXPECT_EQ(memory_limit(machine.root()), std::nullopt);
}

TEST(MemoryLimits, TheMachines) {
  const TestMachine machine;
  machine.write("proc/meminfo", kMeminfo);
  EXPECT_EQ(available_memory(machine.root()), 400 * 1024);
  EXPECT_EQ(memory_limit(machine.root()), 1000 * 1024);
}

TEST(MemoryLimits, WhatTheTightestGroupLeaves) {
  const TestMachine machine;
  machine.write("proc/meminfo", kMeminfo);
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/outer/inner\n");
  machine.write("sys/fs/cgroup/outer/memory.max", "300000\n");
  machine.write("sys/fs/cgroup/outer/memory.current", "200000\n");
  machine.write("sys/fs/cgroup/outer/memory.stat", "anon 150000\ninactive_file 40000\nactive_file 9\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.current", "200000\n");
  EXPECT_EQ(available_memory(machine.root()), 140000);
  EXPECT_EQ(memory_limit(machine.root()), 300000);
  machine.write("sys/fs/cgroup/outer/memory.current", "400000\n");  // a limit that was lowered
  EXPECT_EQ(available_memory(machine.root()), 0);
}

TEST(MemoryLimits, Version1) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  machine.write("proc/self/cgroup", "4:memory:/box\n");
  machine.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000\n");
  machine.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(available_memory(machine.root()), 3000);
  EXPECT_EQ(memory_limit(machine.root()), 5000);
}

TEST(MemoryLimits, AMountWhoseNameHasBlanks) {
  const TestMachine machine;
  machine.write("proc/self/mountinfo", "30 23 0:26 / /sys/control\\040groups rw - cgroup2 cgroup2 rw\n");
  machine.write("proc/self/cgroup", "0::/box\n");
  machine.write("sys/control groups/box/memory.max", "5000\n");
  machine.write("sys/control groups/box/memory.current", "1000\n");
  EXPECT_EQ(available_memory(machine.root()), 4000);
}

}  // namespace
}  // namespace gannet

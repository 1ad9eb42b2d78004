#include "server/http_host.h"

#include <gtest/gtest.h>

namespace gannet::server {
namespace {

TEST(HttpHost, NamesOfThisMachine) {
  const auto allowed = loopback_hosts();
  for (const char* host : {"localhost", "LocalHost:8000", "localhost.", "localhost.:8000", "127.0.0.1", "127.0.0.1:1",
                           "[::1]", "[::1]:8000", ""}) {
    EXPECT_TRUE(is_allowed_host(host, allowed)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
                           "[::2]", "[::1", "[::1]evil", "127.0.0.2", ":8000", "*"}) {
    EXPECT_FALSE(is_allowed_host(host, allowed)) << host;
  }
}

TEST(HttpHost, NamesOfTheOperator) {
  EXPECT_TRUE(is_allowed_host("API.example:443", {"localhost", "api.Example"}));
  EXPECT_FALSE(is_allowed_host("www.api.example", {"api.example"}));
  EXPECT_TRUE(is_allowed_host("anything", {"*"}));
  EXPECT_TRUE(is_allowed_host("anything", {}));
}

}  // namespace
}  // namespace gannet::server

#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "text/json.h"

namespace gannet::server {

// The conversations behind the latest responses, for requests that go on from one by `previous_response_id`. In
// memory; safe to use from several threads.
class ResponsesStore {
 public:
  // The oldest are forgotten when all together take more than that many bytes.
  explicit ResponsesStore(size_t byte_limit = size_t{64} << 20) : byte_limit_(byte_limit) {}

  // `items`: JSON text of a list with all input items and then the output items.
  void keep(const std::string& response_id, std::string items);
  // nullopt if it is not known, or not any more.
  std::optional<text::Json::Array> find(const std::string& response_id);

 private:
  struct Kept {
    std::string id;
    std::string items;
  };
  using List = std::list<Kept>;  // latest use first

  const size_t byte_limit_;
  std::mutex mutex_;
  List list_;
  std::unordered_map<std::string, List::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace gannet::server

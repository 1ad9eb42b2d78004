#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace gannet::server {

// Takes a stream of server-sent events apart, however it is cut into pieces. Comments and all fields but `data` are
// left out.
class SseReader {
 public:
  // Calls `on_event` with the data of each event that is complete.
  void push(std::string_view bytes, const std::function<void(std::string_view data)>& on_event);

 private:
  void take_line(std::string_view line, const std::function<void(std::string_view)>& on_event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace gannet::server

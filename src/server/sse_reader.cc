#include "server/sse_reader.h"

namespace gannet::server {

void SseReader::push(std::string_view bytes, const std::function<void(std::string_view)>& on_event) {
  for (const char byte : bytes) {
    if (byte != '\n') {
      line_ += byte;
      continue;
    }
    if (line_.ends_with('\r')) line_.pop_back();
    take_line(line_, on_event);
    line_.clear();
  }
}

void SseReader::take_line(std::string_view line, const std::function<void(std::string_view)>& on_event) {
  constexpr std::string_view kField = "data:";
  if (line.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line.starts_with(kField)) {
    line.remove_prefix(kField.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
}

}  // namespace gannet::server

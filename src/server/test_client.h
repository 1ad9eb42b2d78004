#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// A blocking HTTP client for tests that sends exactly the bytes it is told to. Nothing here waits longer than
// kPatience, so that a server that hangs fails the test.
namespace gannet::server {

inline constexpr int kPatienceSeconds = 30;

struct TestResponse {
  int status = 0;  // 0: the connection ended before a response
  std::map<std::string, std::string> headers;
  std::string body;
  bool complete = false;  // the body came to its declared end

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

class TestConnection {
 public:
  explicit TestConnection(uint16_t port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{kPatienceSeconds, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestConnection() { close(); }
  TestConnection(TestConnection&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_), input_(std::move(other.input_)) {}
  TestConnection(const TestConnection&) = delete;

  bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void shut_down_writing() { ::shutdown(socket_, SHUT_WR); }
  // Ends the connection with a reset instead of an orderly close.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  // Everything up to and including `mark`; nullopt if the connection ends before it.
  std::optional<std::string> read_through(std::string_view mark) {
    size_t end = 0;
    while ((end = input_.find(mark)) == std::string::npos) {
      if (!fill()) return std::nullopt;
    }
    return take(end + mark.size());
  }
  // Whether the server has closed its side, after any bytes that still come.
  bool at_end() {
    while (fill()) {
    }
    return ended_;
  }
  std::string rest() {
    at_end();
    return std::exchange(input_, {});
  }

  TestResponse read_response(bool head = false) {
    TestResponse response = read_head();
    if (response.status == 0 || response.status == 204 || head) return response;
    if (response.header("transfer-encoding") == "chunked") {
      while (auto chunk = read_chunk()) {
        if (chunk->empty()) {
          response.complete = true;
          break;
        }
        response.body += *chunk;
      }
    } else if (const auto length = response.header("content-length"); !length.empty()) {
      const size_t wanted = std::strtoull(length.c_str(), nullptr, 10);
      while (input_.size() < wanted && fill()) {
      }
      response.complete = input_.size() >= wanted;
      response.body = take(std::min(wanted, input_.size()));
    } else {
      response.body = rest();
      response.complete = ended_;
    }
    return response;
  }

  // Status line and headers only.
  TestResponse read_head() {
    TestResponse response;
    const auto head = read_through("\r\n\r\n");
    if (!head || head->size() < 12) return response;
    response.status = std::atoi(head->c_str() + 9);
    size_t line = head->find("\r\n") + 2;
    while (line < head->size() - 2) {
      const size_t end = head->find("\r\n", line);
      const size_t colon = head->find(": ", line);
      std::string name = head->substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      response.headers[name] = head->substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    return response;
  }

  // One chunk of a chunked body; empty: its end. nullopt: the connection ended first.
  std::optional<std::string> read_chunk() {
    const auto line = read_through("\r\n");
    if (!line) return std::nullopt;
    const size_t size = std::strtoull(line->c_str(), nullptr, 16);
    while (input_.size() < size + 2) {
      if (!fill()) return std::nullopt;
    }
    std::string chunk = take(size);
    take(2);
    return chunk;
  }

  TestResponse request(const std::string& method, const std::string& path, const std::string& body = "",
                       const std::string& headers = "") {
    send(request_text(method, path, body, headers));
    return read_response(method == "HEAD");
  }

  static std::string request_text(const std::string& method, const std::string& path, const std::string& body = "",
                                  const std::string& headers = "") {
    return method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + headers +
           (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
  }

 private:
  bool fill() {
    char bytes[16384];
    const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (count > 0) input_.append(bytes, static_cast<size_t>(count));
    if (count == 0) ended_ = true;
    return count > 0;
  }
  std::string take(size_t count) {
    std::string taken = input_.substr(0, count);
    input_.erase(0, count);
    return taken;
  }

  int socket_;
  bool connected_ = false;
  bool ended_ = false;
  std::string input_;
};

}  // namespace gannet::server

#include "cli/bench_load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace gannet::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // without any event
constexpr std::string_view kEventMark = "data: ";

}  // namespace

// The request is small enough for the socket's buffer, and the server is on this machine: sending does not wait.
Status LoadClient::open(size_t stream, const std::string& body) {
  Connection& connection = connections_[stream];
  connection.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(connection.socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return failed("stream {} cannot connect: {}", stream, std::strerror(errno));
  }
  const std::string request =
      fmt::format("POST {} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  path_, body.size(), body);
  if (::send(connection.socket, request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request)) {
    return failed("stream {} cannot send its request: {}", stream, std::strerror(errno));
  }
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.u64 = stream;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket, &interest);
  return {};
}

void LoadClient::close(size_t stream) {
  Connection& connection = connections_[stream];
  if (connection.socket >= 0) ::close(connection.socket);
  connection.socket = -1;
}

Status LoadClient::read(size_t stream, bool& ended) {
  Connection& connection = connections_[stream];
  std::array<char, 16384> bytes;
  const ssize_t count = ::recv(connection.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (count <= 0) return failed("stream {} broke off; the last it got was '{}'", stream, connection.input);
  connection.input.append(bytes.data(), static_cast<size_t>(count));
  return take_lines(stream, ended);
}

Status LoadClient::take_lines(size_t stream, bool& ended) {
  Connection& connection = connections_[stream];
  const auto now = Clock::now();
  size_t begin = 0;
  for (size_t end = 0; (end = connection.input.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line(connection.input.data() + begin, end - begin);
    if (!connection.head_seen) {
      connection.head_seen = true;
      if (!line.starts_with("HTTP/1.1 200")) return failed("stream {} was answered '{}'", stream, line);
    }
    if (!line.starts_with(kEventMark)) continue;
    const std::string_view event = line.substr(kEventMark.size());
    on_event_(stream, event, now);
    ended = ended || event == "[DONE]";
  }
  connection.input.erase(0, begin);
  return {};
}

Status LoadClient::run(const std::vector<Stream>& streams, size_t concurrent) {
  connections_.assign(streams.size(), {});
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  const auto begin = Clock::now();
  auto last_event = begin;
  size_t opened = 0;
  size_t ended = 0;
  Status status;
  std::array<epoll_event, 256> events;
  while (status && !stopped_ && ended < streams.size()) {
    const auto now = Clock::now();
    while (status && opened < streams.size() && begin + streams[opened].start <= now &&
           (concurrent == 0 || opened - ended < concurrent)) {
      status = open(opened, streams[opened].body);
      ++opened;
    }
    const int timeout_ms = opened < streams.size() ? 1 : 1000;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
    if (count > 0) last_event = now;
    if (now - last_event > kPatience) status = failed("nothing came from the server for a minute");
    for (int i = 0; status && i < count; ++i) {
      const size_t stream = events[i].data.u64;
      bool done = false;
      status = read(stream, done);
      if (!done) continue;
      close(stream);
      ++ended;
    }
  }
  for (size_t stream = 0; stream < streams.size(); ++stream) close(stream);
  ::close(epoll_);
  return status;
}

}  // namespace gannet::cli

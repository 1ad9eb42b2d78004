#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "server/http_transport.h"

namespace gannet::server {

// A server's certificate and key. TLS 1.2 and newer.
class TlsContext {
 public:
  // PEM files; the certificate may be followed by its chain. Errors name the file.
  static Result<std::shared_ptr<TlsContext>> load(const std::filesystem::path& certificate,
                                                  const std::filesystem::path& key);
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<Transport> transport(boost::asio::ip::tcp::socket socket) = 0;
};

}  // namespace gannet::server

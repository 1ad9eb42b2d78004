#include "server/web_page.h"

#include "server/web_files.h"

namespace gannet::server {

const WebFile* find_web_file(std::string_view path) {
  for (const WebFile& file : kWebFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

HttpResponse web_response(const WebFile& file) {
  HttpResponse response;
  response.content_type = std::string(file.content_type);
  response.body = std::string(file.content);
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  return response;
}

}  // namespace gannet::server

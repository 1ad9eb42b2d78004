#pragma once

#include <string_view>

#include "server/http.h"

// The page for people at "/", files of web/, and the description of the API; all compiled into the program.
namespace gannet::server {

struct WebFile {
  std::string_view path;  // "/", "/openapi.json" or below "/web/"
  std::string_view content_type;
  std::string_view content;
};

// Null if there is none.
const WebFile* find_web_file(std::string_view path);

// As a response that browsers run nothing in but the page's own script.
HttpResponse web_response(const WebFile& file);

}  // namespace gannet::server

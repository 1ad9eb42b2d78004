#pragma once

#include "server/http.h"

namespace gannet::server {

// One line for a request: who asked for what, how it ended, how long it took; never what was said. Questions that
// machines ask all the time are logged as debug, the others as info.
void log_request(const RequestRecord& record);

}  // namespace gannet::server

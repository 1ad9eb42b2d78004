#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// What the protocols see of HTTP. Nothing here knows of sockets, models or JSON.
namespace gannet::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // as sent: "GET", "POST", ...
  std::string path;    // target without its query, not percent-decoded
  std::string query;   // behind the '?'; empty if there is none
  Headers headers;     // names in lower case
  std::string body;
  std::string id;         // X-Request-Id as the client sent it, or one made here
  std::string remote;     // the client's address
  bool admitted = false;  // a Gate has let it in

  // Value of the first header of that (lower-case) name; empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

// An answer that takes time. All calls come from the network thread and must be quick. The object is destroyed once
// the answer has been sent or the client has gone, and must then stop what works for it.
class PendingAnswer {
 public:
  virtual ~PendingAnswer() = default;
  // Called once, before everything else. `wake` may be called from any thread, also when nobody waits any more; the
  // answer is asked again soon after.
  virtual void start(std::function<void()> wake) = 0;
  // Tokens generated so far, for the log.
  virtual int64_t tokens() const { return 0; }
};

// One response, sent when it is complete.
class WholeAnswer : public PendingAnswer {
 public:
  virtual std::optional<HttpResponse> poll() = 0;
};

// A response with status 200 whose body is sent as it comes.
class StreamedAnswer : public PendingAnswer {
 public:
  virtual std::string content_type() const = 0;
  virtual Headers headers() const { return {}; }
  // Appends what can be sent now; true when the body is complete.
  virtual bool pull(std::string& out) = 0;
  // Appends what tells a client, when there has been nothing to send for a while, that its answer will come.
  virtual void keep_alive(std::string& out) = 0;
};

using Reply = std::variant<HttpResponse, std::unique_ptr<WholeAnswer>, std::unique_ptr<StreamedAnswer>>;

// Answers a request. Called on a worker thread if the request has a body, else on the network thread.
using Handler = std::function<Reply(const HttpRequest&)>;

// Looks at a request before its body is read: an answer turns it away, and its body is never taken in. Called on the
// network thread; must be quick.
using Gate = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

// The body of an error that HTTP itself found: status, and one sentence on what was wrong with the request. `path` is
// empty when the request did not come that far.
using ErrorPage = std::function<HttpResponse(int status, const std::string& message, std::string_view path)>;

// What became of a request.
struct RequestRecord {
  std::string id;
  std::string method;  // empty, like the path, if the request could not be read
  std::string path;
  std::string remote;
  int status = 0;      // kClientGone if nobody was there to read the answer to its end
  double seconds = 0;  // from the request's first byte to the answer's last
  uint64_t bytes = 0;  // sent, headers included
  int64_t tokens = 0;  // generated
};
inline constexpr int kClientGone = 499;

// Called on the network thread once per request; must be quick.
using Observer = std::function<void(const RequestRecord&)>;

}  // namespace gannet::server

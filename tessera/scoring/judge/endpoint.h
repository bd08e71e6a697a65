// Asks a model behind an address for chat completions, as the OpenAI API has them.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "tessera/io/http_client.h"
#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {

struct EndpointOptions {
  std::string url = "http://127.0.0.1:8000/v1";  // up to /v1
  std::string model;                             // as the endpoint knows it
  std::string key;                               // sent as a bearer token, if it is not empty
  Json fields = Json::object();                  // of every request, over its own; null takes one away
  io::HttpLimits limits = {.stall_s = 600, .attempts = 8};
};

struct ChatRequest {
  Json messages = Json::array();
  double temperature = 0.0;
  int64_t max_tokens = 0;
  std::optional<int64_t> seed;
};

// The code of the error for a request that the endpoint refuses while it may take others.
inline constexpr const char* kRefusedCode = "E-CONFIG-ENDPOINT-REFUSED";

// One connection, which one thread uses.
class Endpoint {
 public:
  // Throws Error(Config, "ENDPOINT-ADDRESS") for an address without http:// or https://, and "ENVIRONMENT"
  // for a key that no header can hold. Requests end soon once `stop` is true.
  Endpoint(const EndpointOptions& options, const std::atomic<bool>& stop);

  // Returns the text of the answer, "" if the model has said nothing. `what` is what is asked, in the words
  // of an error. Passing troubles are waited out (io/http_retries.h). Throws E-CONFIG-ENDPOINT-ACCESS (401,
  // 403), -NOT-FOUND (404) and -REFUSED (any other refusal), and E-STORAGE-ENDPOINT-UNREACHABLE, -BROKEN and
  // -ANSWER (it does not answer as the API has it).
  std::string chat(const std::string& what, const ChatRequest& request);

 private:
  EndpointOptions options_;
  const std::atomic<bool>& stop_;
  io::HttpClient client_;
};

}  // namespace tessera::scoring::judge

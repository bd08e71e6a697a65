#include "tessera/scoring/judge/endpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/http_retries.h"

namespace tessera::scoring::judge {
namespace {

constexpr size_t kMaxReplyBytes = size_t{64} << 20;

EndpointOptions checked(EndpointOptions options) {
  std::string& url = options.url;
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    throw Error(ErrorKind::Config, "ENDPOINT-ADDRESS", "--endpoint")
        .got("'" + url + "'")
        .need("an address such as http://127.0.0.1:8000/v1");
  }
  while (url.ends_with('/')) url.pop_back();
  // Anything else would be a header of its own, or none.
  if (std::ranges::any_of(options.key, [](char c) { return c <= ' ' || c >= 0x7f; })) {
    throw Error(ErrorKind::Config, "ENVIRONMENT", "the environment variable OPENAI_API_KEY contains no key")
        .need("a single word");
  }
  return options;
}

Error failure(const std::string& what, const io::HttpFault& fault) {
  return Error(ErrorKind::Storage, fault.is_unreachable ? "ENDPOINT-UNREACHABLE" : "ENDPOINT-BROKEN",
               what + ": " + fault.what)
      .hint(fault.is_unreachable ? "--endpoint is the address of a server that runs; HTTPS_PROXY sets a proxy"
                                 : "the rows that are written stay: the same command asks for the rest");
}

Error refusal(const std::string& what, const EndpointOptions& options, const io::HttpAnswer& answer) {
  const auto make = [&](const char* code, const std::string& text, const std::string& hint) {
    return Error(ErrorKind::Config, code, what + ": " + options.url + ' ' + text)
        .got(answer.told())
        .hint(hint);
  };
  if (answer.status == 401 || answer.status == 403)
    return make("ENDPOINT-ACCESS", "asks for another key",
                "the environment variable OPENAI_API_KEY holds the key");
  if (answer.status == 404)
    return make("ENDPOINT-NOT-FOUND", "has no such route or model",
                "--endpoint usually ends in /v1, and GET /v1/models lists the models");
  return make("ENDPOINT-REFUSED", "refuses the request",
              "--request sets or takes away fields: '{\"max_tokens\": null}'");
}

Error bad_answer(const std::string& what, const EndpointOptions& options, const std::string& got) {
  return Error(ErrorKind::Storage, "ENDPOINT-ANSWER",
               what + ": " + options.url + " answers no chat completion")
      .got(first_line(got).substr(0, 200))
      .hint("--endpoint usually ends in /v1");
}

}  // namespace

Endpoint::Endpoint(const EndpointOptions& options, const std::atomic<bool>& stop)
    : options_(checked(options)), stop_(stop), client_(options_.limits, options_.key, stop) {}

std::string Endpoint::chat(const std::string& what, const ChatRequest& request) {
  Json fields = {{"model", options_.model},
                 {"messages", request.messages},
                 {"temperature", request.temperature},
                 {"max_tokens", request.max_tokens}};
  if (request.seed) fields["seed"] = *request.seed;
  fields.merge_patch(options_.fields);
  const std::string body = line_of(fields);
  const io::HttpSending sending{.url = options_.url + "/chat/completions",
                                .headers = {"Content-Type: application/json", "Accept: application/json"},
                                .num_bytes = std::ssize(body),
                                .read = [&](int64_t offset, char* to, int64_t count) {
                                  std::memcpy(to, body.data() + offset, static_cast<size_t>(count));
                                }};
  io::HttpRetries retries(options_.limits, what, failure, stop_);
  std::string reply;
  const io::HttpAnswer answer = retries.ask([&] {
    reply.clear();
    return client_.send(sending, [&](const io::HttpAnswer&, std::string_view bytes) {
      if (reply.size() + bytes.size() > kMaxReplyBytes)
        throw bad_answer(what, options_, "an answer without an end");
      reply += bytes;
    });
  });
  if (!answer.is_good()) throw refusal(what, options_, answer);
  const Json value = Json::parse(reply, nullptr, /*allow_exceptions=*/false);
  const Json::json_pointer place("/choices/0/message");
  if (value.is_discarded() || !value.contains(place) || !value[place].is_object())
    throw bad_answer(what, options_, reply);
  const Json content = value[place].value("content", Json());
  if (!content.is_null() && !content.is_string()) throw bad_answer(what, options_, reply);
  std::string text = content.is_null() ? "" : content.get<std::string>();
  std::erase(text, '\0');  // which no file of rows may hold
  return text;
}

}  // namespace tessera::scoring::judge

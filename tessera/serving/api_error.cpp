#include "tessera/serving/api_error.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/utf8.h"

namespace tessera::serving {
namespace {

constexpr size_t kMaxMessage = 1000, kMaxParam = 200;

// Cuts a text that may quote the request, so that an error is not larger than a small page.
std::string cut(std::string text, size_t size) {
  if (text.size() <= size) return text;
  text.resize(size);
  text.resize(valid_utf8_prefix(text));
  return text + "...";
}

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

ApiError::ApiError(int status, std::string type, std::string message, std::string param, std::string code)
    : status_(status),
      type_(std::move(type)),
      message_(cut(repair_utf8(message), kMaxMessage)),
      param_(cut(repair_utf8(param), kMaxParam)),
      code_(std::move(code)) {}

ApiError ApiError::bad(std::string message, std::string param, std::string code) {
  return {400, "invalid_request_error", std::move(message), std::move(param), std::move(code)};
}

ApiError ApiError::no_key() {
  return {401, "authentication_error", "the request has no valid API key: send Authorization: Bearer KEY", "",
          "invalid_api_key"};
}

ApiError ApiError::not_found(std::string message, std::string param, std::string code) {
  return {404, "not_found_error", std::move(message), std::move(param), std::move(code)};
}

ApiError ApiError::busy(std::string message) { return {503, "unavailable_error", std::move(message)}; }

ApiError ApiError::failed(std::string message) { return {500, "server_error", std::move(message)}; }

std::string ApiError::body() const {
  const nlohmann::ordered_json error = {
      {"message", message_}, {"type", type_}, {"param", or_null(param_)}, {"code", or_null(code_)}};
  return nlohmann::ordered_json{{"error", error}}.dump();
}

}  // namespace tessera::serving

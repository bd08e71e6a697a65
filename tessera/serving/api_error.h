// Errors as clients are told them.
#pragma once

#include <exception>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera::serving {

// An error as clients of the OpenAI API expect it.
class ApiError : public std::exception {
 public:
  ApiError(int status, std::string type, std::string message, std::string param = "", std::string code = "");

  // A request that is wrong (400); `param` names the field.
  static ApiError bad(std::string message, std::string param = "", std::string code = "");
  // No valid key (401).
  static ApiError no_key();
  // A route or a model that does not exist (404).
  static ApiError not_found(std::string message, std::string param = "", std::string code = "");
  // The server cannot take the request now (503); the client may try again.
  static ApiError busy(std::string message);
  // Something failed here (500); trying again would not help.
  static ApiError failed(std::string message);

  int status() const { return status_; }
  bool may_retry() const { return status_ == 503; }
  const char* what() const noexcept override { return message_.c_str(); }
  // Returns {"error": {"message", "type", "param", "code"}}, as text. Long parts are cut.
  std::string body() const;

 private:
  int status_;
  std::string type_, message_, param_, code_;
};

}  // namespace tessera::serving

// Holds what the verbs that listen for HTTP requests share: their options, keys, and the end by a signal.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "tessera/serving/api_keys.h"
#include "tessera/serving/http_server.h"

namespace tessera::cli {

struct ListenOptions {
  serving::HttpOptions http;
  std::string key_file;
};

// Adds --host, --port (by default `port`) and --api-key-file.
void add_listen_options(CLI::App& verb, ListenOptions& options, int port);

// Returns the keys of the file, or the one in TESSERA_API_KEY, or none. Throws Error(Config, "API-KEYS").
serving::ApiKeys read_keys(const ListenOptions& options);

// Warns if everybody can reach the address and no key is needed.
void warn_of_open_door(const ListenOptions& options, const serving::ApiKeys& keys);

// Returns "http://host:port".
std::string address_of(const ListenOptions& options, const serving::HttpServer& server);

// While it lives, the first SIGINT or SIGTERM is told to the one who waits; the second ends the process as
// usual.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static void wait();
};

}  // namespace tessera::cli

#include "tessera/cli/listening.h"

#include <csignal>

#include <poll.h>
#include <unistd.h>

#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::cli {
namespace {

int stop_pipe[2] = {-1, -1};

}  // namespace

void add_listen_options(CLI::App& verb, ListenOptions& options, int port) {
  verb.add_option("--host", options.http.host,
                  "Address to listen at; 0.0.0.0 = all addresses of this machine");
  options.http.port = port;
  verb.add_option("--port", options.http.port, "Port to listen at; 0 = any free one, which the log tells")
      ->check(CLI::Range(0, 65535));
  verb.add_option("--api-key-file", options.key_file,
                  "File of keys, one on each line; every request but GET /health must then carry one of them "
                  "(default: the key in TESSERA_API_KEY, or no key)")
      ->check(CLI::ExistingFile);
}

serving::ApiKeys read_keys(const ListenOptions& options) {
  if (!options.key_file.empty()) return serving::ApiKeys::from_file(options.key_file);
  if (const auto key = environment::get("TESSERA_API_KEY")) return serving::ApiKeys({*key});
  return {};
}

void warn_of_open_door(const ListenOptions& options, const serving::ApiKeys& keys) {
  const std::string& host = options.http.host;
  const bool is_own = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (!is_own && keys.is_empty())
    log::warn("everybody who reaches " + host + " can use this server; --api-key-file asks for a key");
}

std::string address_of(const ListenOptions& options, const serving::HttpServer& server) {
  const std::string& host = options.http.host;
  return "http://" + (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" +
         std::to_string(server.port());
}

StopSignals::StopSignals() {
  if (pipe(stop_pipe) != 0) throw Error(ErrorKind::Internal, "SYSTEM", "no pipe");
  struct sigaction action {};
  action.sa_handler = [](int) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    (void)!write(stop_pipe[1], "", 1);
  };
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

void StopSignals::wait() {
  pollfd waited = {stop_pipe[0], POLLIN, 0};
  while (poll(&waited, 1, -1) <= 0) {
  }
}

}  // namespace tessera::cli

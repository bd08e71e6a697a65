// The last words of a run that a signal ends: Ctrl-C, or the launcher that ends its ranks.
#pragma once

#include <string>

namespace tessera::train {

// While it lives, SIGINT, SIGTERM and SIGHUP (unless they are ignored) say one line, remove the lock, and
// then end the process as they would have. One at a time.
class EndNotice {
 public:
  explicit EndNotice(const std::string& lock_path);
  ~EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

  // The line from now on, without "tessera: "; cut at 1 KiB.
  void set(const std::string& text);
};

}  // namespace tessera::train

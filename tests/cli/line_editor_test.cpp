#include "tessera/cli/line_editor.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::cli {
namespace {

// A process at a terminal of its own, which reads lines and tells them through a pipe.
class Typist {
 public:
  explicit Typist(const std::string& home) {
    EXPECT_EQ(pipe(told_), 0);
    EXPECT_EQ(openpty(&terminal_, &inside_, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(tcgetattr(inside_, &before_), 0);
    process_ = fork();
    if (process_ == 0) read_lines(home);
    close(told_[1]);
    see("> ");
  }
  Typist(const Typist&) = delete;
  Typist& operator=(const Typist&) = delete;
  ~Typist() {
    for (const int descriptor : {terminal_, inside_, told_[0]}) close(descriptor);
  }

  // Types once the editor takes single keys: the prompt is there before, and until then the terminal itself
  // would take the key that ends the input.
  void type(const std::string& keys) const {
    EXPECT_TRUE(takes_keys());
    EXPECT_EQ(write(terminal_, keys.data(), keys.size()), std::ssize(keys));
  }
  // Types a line and returns what was read.
  std::string line(const std::string& keys) const {
    type(keys + "\r");
    std::string line;
    for (char byte = 0; read(told_[0], &byte, 1) == 1 && byte != '\n';) line += byte;
    see("\n> ");
    return line;
  }
  // Waits until the terminal shows a text.
  void see(const std::string& text) const {
    std::string shown;
    pollfd ready{terminal_, POLLIN, 0};
    while (!shown.ends_with(text) && poll(&ready, 1, kSeconds * 1000) == 1) {
      char byte = 0;
      if (read(terminal_, &byte, 1) != 1) break;
      shown += byte;
    }
    EXPECT_TRUE(shown.ends_with(text)) << shown;
  }
  // Waits for the end of the process and returns its status.
  int end() const {
    int status = -1;
    waitpid(process_, &status, 0);
    return status;
  }
  // Tells whether the terminal is as it was before the first line.
  bool is_as_it_was() const {
    termios now = {};
    EXPECT_EQ(tcgetattr(inside_, &now), 0);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag;
  }

 private:
  bool takes_keys() const {
    termios now = {};
    for (int wait = 0; wait < kSeconds * 1000; ++wait) {
      if (tcgetattr(inside_, &now) == 0 && (now.c_lflag & ICANON) == 0) return true;
      usleep(1000);
    }
    return false;
  }
  [[noreturn]] void read_lines(const std::string& home) const {
    alarm(kSeconds);
    if (login_tty(inside_) != 0) _exit(1);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    setenv("HOME", home.c_str(), 1);
    unsetenv("EDITRC");
    std::signal(SIGINT, SIG_DFL);
    const LineEditor editor;
    while (const auto line = editor.next_line("> ")) {
      const std::string told = *line + '\n';
      if (write(told_[1], told.data(), told.size()) != std::ssize(told)) _exit(1);
    }
    _exit(0);
  }

  // How long a process lives and a text is waited for.
  static constexpr int kSeconds = 60;

  int told_[2] = {-1, -1}, terminal_ = -1, inside_ = -1;
  pid_t process_ = -1;
  termios before_ = {};
};

class LineEditorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // An editor may be made at a terminal alone.
    if (!SharedLibrary({"libedit.so.2"}).is_usable()) GTEST_SKIP() << testing::skip::kLibEdit;
  }
  const testing::TempFolder home;
};

TEST_F(LineEditorTest, EditsAndRemembersLines) {
  const Typist typist(home.path());
  EXPECT_EQ(typist.line("mosa\xc3\xafque"), "mosa\xc3\xafque") << "the locale is C";
  EXPECT_EQ(typist.line("\x1b[A!"), "mosa\xc3\xafque!") << "the line before";
  EXPECT_EQ(typist.line("\xe4\xb8\xad\x7f"
                        "b\x01"
                        "a"),
            "ab")
      << "a character is deleted whole";
  EXPECT_EQ(typist.line("a\tb"), "a\tb");
  EXPECT_EQ(typist.line(""), "");
  EXPECT_EQ(typist.line("\x1b[A\x1b[A"), "ab") << "an empty line is not remembered";
  typist.type("\x04");
  EXPECT_EQ(typist.end(), 0);
  EXPECT_TRUE(typist.is_as_it_was());
}

TEST_F(LineEditorTest, AnInterruptLeavesTheTerminalAsItWas) {
  const Typist typist(home.path());
  typist.type("begun");
  typist.see("begun");
  typist.type("\x03");
  const int status = typist.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_TRUE(typist.is_as_it_was());
}

}  // namespace
}  // namespace tessera::cli

#include "tessera/config/yaml_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"

namespace tessera::config {
namespace {

size_t count_nodes(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

// Builds the tree from the parser's events. Throwing from an event stops the parser before it recurses
// further, so the limits of this class bound the parser's stack.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, Place file, KeepTags keep_tags)
      : text_(text), file_(std::move(file)), keeps_tags_(keep_tags == KeepTags::Yes) {
    size_t start = 0;
    while (start <= text.size()) {
      line_starts_.push_back(start);
      const size_t end = text.find('\n', start);
      if (end == std::string_view::npos) break;
      start = end + 1;
    }
  }

  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ > 1) {
      throw config_error("SYNTAX", "more than one YAML document", place(mark)).need("one document a file");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_bare_anchor(mark);
    Node node;
    node.place = place(mark);
    finish(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (++num_aliases_ > kMaxAliases) {
      throw config_error("TOO-MANY-ALIASES", "too many YAML aliases", place(mark))
          .need("at most " + std::to_string(kMaxAliases));
    }
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw config_error("SYNTAX", "an alias inside its own anchor", place(mark));
    add_to_count(count_nodes(it->second), mark);
    Node copy = it->second;
    // The depth of the copy adds to the depth at which it is pasted.
    check_depth(static_cast<int>(frames_.size()) + depth_of(copy), mark);
    finish(std::move(copy), YAML::NullAnchor, place(mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tabs(mark);
    refuse_open_quote(mark);
    // Escapes can produce bytes that the text itself must not contain: "\0" a zero byte, "\N" and "\_" single
    // bytes that are not UTF-8.
    if (value.find('\0') != std::string::npos || find_invalid_utf8(value) >= 0) {
      throw config_error("ENCODING", "an escape in this text is not supported", place(mark));
    }
    Node node = make_scalar(value, place(mark));
    if (tag == "!" || tag == "tag:yaml.org,2002:str") {
      node.is_quoted = true;
    } else if (tag != "?" && tag != "tag:yaml.org,2002:int" && tag != "tag:yaml.org,2002:float" &&
               tag != "tag:yaml.org,2002:bool" && keeps_tags_) {
      node.tag = tag;
    } else if (tag != "?" && tag != "tag:yaml.org,2002:int" && tag != "tag:yaml.org,2002:float" &&
               tag != "tag:yaml.org,2002:bool") {
      throw config_error("SYNTAX", "YAML tag '" + tag + "' is not supported", place(mark))
          .hint("remove the tag");
    }
    finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    start(Node::Kind::Sequence, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { end(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    start(Node::Kind::Map, mark, tag, anchor, style);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool is_flow = false;
    bool has_key = false;
    std::string key;
    Place key_place;
    bool is_merge_key = false;
    std::vector<Node> merged;                        // values of the key <<
    std::unordered_map<std::string, int64_t> lines;  // key -> line of its first occurrence, to find
                                                     // duplicates
  };

  Place place(const YAML::Mark& mark) const {
    Place out = file_;
    if (mark.line >= 0 && !file_.is_override) {
      out.line = mark.line + 1;
      out.column = mark.column + 1;
    }
    return out;
  }

  static int depth_of(const Node& node) {
    int depth = 0;
    for (const Node& item : node.items) depth = std::max(depth, depth_of(item));
    for (const Entry& entry : node.entries) depth = std::max(depth, depth_of(entry.value));
    return node.is_map() || node.is_sequence() ? depth + 1 : depth;
  }

  void check_depth(int depth, const YAML::Mark& mark) const {
    if (depth > kMaxDepth) {
      throw config_error("TOO-DEEP", "maps and lists are nested too deeply", place(mark))
          .need("at most " + std::to_string(kMaxDepth) + " levels");
    }
  }

  void add_to_count(size_t count, const YAML::Mark& mark) {
    num_nodes_ += count;
    if (num_nodes_ > kMaxNodes) {
      throw config_error("TOO-LARGE", "too many values", place(mark))
          .need("at most " + std::to_string(kMaxNodes));
    }
  }

  // Tabs must not indent block structure, since YAML 1.2 leaves their width open.
  void refuse_tabs(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<size_t>(mark.line) >= line_starts_.size()) return;
    if (!frames_.empty() && frames_.back().is_flow) return;
    const size_t start = line_starts_[static_cast<size_t>(mark.line)];
    const std::string_view before = text_.substr(start, static_cast<size_t>(std::max(mark.column, 0)));
    const size_t tab = before.find('\t');
    if (tab == std::string_view::npos || before.find_first_not_of(" \t-?") != std::string_view::npos) return;
    Place at = place(mark);
    at.column = static_cast<int64_t>(tab) + 1;
    throw config_error("TAB", "a tab in the indentation", at).hint("indent with spaces");
  }

  // Refuses an anchor on nothing: `pad_token: &pad` reads as one, where text was meant.
  void refuse_bare_anchor(const YAML::Mark& mark) const {
    if (mark.line < 0 || mark.column < 0 || static_cast<size_t>(mark.line) >= line_starts_.size()) return;
    const size_t begin = line_starts_[static_cast<size_t>(mark.line)] + static_cast<size_t>(mark.column);
    if (begin >= text_.size() || text_[begin] != '&') return;
    const size_t end = std::min(text_.find_first_of(" \t\r\n,]}", begin), text_.size());
    const size_t value = text_.find_first_not_of(" \t\r\n", end);
    if (value != std::string_view::npos &&
        (text_[value] == '~' || text_[value] == 'n' || text_[value] == 'N'))
      return;
    throw config_error("SYNTAX",
                       "the YAML anchor '" + std::string(text_.substr(begin, end - begin)) + "' has no value",
                       place(mark))
        .hint("quote a text that starts with &");
  }

  // Refuses a quoted text that no quote ends. The parser accepts it if a line end stands before the end of
  // the file.
  void refuse_open_quote(const YAML::Mark& mark) const {
    if (mark.line < 0 || mark.column < 0 || static_cast<size_t>(mark.line) >= line_starts_.size()) return;
    size_t i = line_starts_[static_cast<size_t>(mark.line)] + static_cast<size_t>(mark.column);
    if (i >= text_.size() || (text_[i] != '\'' && text_[i] != '"')) return;
    const char quote = text_[i];
    for (++i; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '"' || i + 1 >= text_.size() || text_[i + 1] != quote) return;
        ++i;
      }
    }
    throw config_error("SYNTAX", "the quote that opens here is never closed", place(mark));
  }

  void start(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
             YAML::EmitterStyle::value style) {
    refuse_tabs(mark);
    check_depth(static_cast<int>(frames_.size()) + 1, mark);
    add_to_count(1, mark);
    if (!frames_.empty() && frames_.back().node.is_map() && !frames_.back().has_key) {
      throw config_error("SYNTAX", "a map or list stands where a key is expected", place(mark));
    }
    if (tag != "?" && tag != "!" && tag != "tag:yaml.org,2002:map" && tag != "tag:yaml.org,2002:seq") {
      throw config_error("SYNTAX", "YAML tag '" + tag + "' is not supported", place(mark))
          .hint("remove the tag");
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.place = place(mark);
    frame.anchor = anchor;
    frame.is_flow = style == YAML::EmitterStyle::Flow;
    frames_.push_back(std::move(frame));
  }

  void end() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    for (Node& source : frame.merged) {
      for (Entry& entry : source.entries) {
        const bool is_new = frame.lines.emplace(entry.key, entry.key_place.line).second;
        if (is_new) frame.node.entries.push_back(std::move(entry));
      }
    }
    attach(std::move(frame.node), frame.anchor, nullptr);
  }

  void finish(Node node, YAML::anchor_t anchor) {
    YAML::Mark mark;
    mark.line = static_cast<int>(node.place.line) - 1;
    mark.column = static_cast<int>(node.place.column) - 1;
    add_to_count(1, mark);
    attach(std::move(node), anchor, nullptr);
  }
  void finish(Node node, YAML::anchor_t anchor, const Place& alias_place) {
    attach(std::move(node), anchor, &alias_place);
  }

  void attach(Node node, YAML::anchor_t anchor, const Place* alias_place) {
    if (anchor != YAML::NullAnchor) {
      const size_t count = count_nodes(node);
      YAML::Mark mark;
      mark.line = static_cast<int>(node.place.line) - 1;
      mark.column = static_cast<int>(node.place.column) - 1;
      add_to_count(count, mark);
      anchors_[anchor] = node;
    }
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = frames_.back();
    if (parent.node.is_sequence()) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      set_key(parent, node, alias_place);
    } else {
      parent.has_key = false;
      if (parent.is_merge_key) {
        collect_merged(parent, std::move(node));
      } else {
        parent.node.entries.push_back({std::move(parent.key), parent.key_place, std::move(node), ""});
      }
    }
  }

  void set_key(Frame& frame, const Node& node, const Place* alias_place) {
    const Place& at = alias_place != nullptr ? *alias_place : node.place;
    if (!node.is_scalar()) throw config_error("SYNTAX", "a key must be text", at).got(describe(node));
    frame.has_key = true;
    frame.key = node.text;
    frame.key_place = at;
    frame.is_merge_key = node.text == "<<" && !node.is_quoted;
    const auto [it, is_new] = frame.lines.emplace(node.text, at.line);
    if (is_new) return;
    Error error = config_error("DUPLICATE-KEY", "key '" + node.text + "' is given twice", at);
    if (!at.is_override)
      error.got("line " + std::to_string(it->second) + " and line " + std::to_string(at.line));
    throw error.need("one of them");
  }

  static void collect_merged(Frame& frame, Node node) {
    if (node.is_map()) {
      frame.merged.push_back(std::move(node));
      return;
    }
    if (node.is_sequence() &&
        std::all_of(node.items.begin(), node.items.end(), [](const Node& n) { return n.is_map(); })) {
      for (Node& item : node.items) frame.merged.push_back(std::move(item));
      return;
    }
    throw config_error("SYNTAX", "the merge key << needs a map", frame.key_place).got(describe(node));
  }

  std::string_view text_;
  std::vector<size_t> line_starts_;
  Place file_;
  bool keeps_tags_;
  Node root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchors_;
  int num_aliases_ = 0, num_documents_ = 0;
  size_t num_nodes_ = 0;
};

std::pair<int64_t, int64_t> line_and_column(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  return {line, static_cast<int64_t>(offset - start) + 1};
}

// Returns the first line up to `last_line` that is indented with a tab, or 0 when there is none.
int64_t line_with_tab(std::string_view text, int64_t last_line) {
  int64_t line = 1;
  size_t start = 0;
  while (start < text.size() && line <= last_line) {
    const size_t content = text.find_first_not_of(' ', start);
    if (content != std::string_view::npos && text[content] == '\t') return line;
    const size_t end = text.find('\n', start);
    if (end == std::string_view::npos) break;
    start = end + 1;
    ++line;
  }
  return 0;
}

[[noreturn]] void throw_io(const std::string& path, int code) {
  const bool is_missing = code == ENOENT || code == ENOTDIR;
  throw Error(ErrorKind::Config, is_missing ? "NOT-FOUND" : "UNREADABLE",
              std::string(is_missing ? "no such file" : "cannot read the file: ") +
                  (is_missing ? "" : std::strerror(code)))
      .at(path);
}

}  // namespace

std::string read_config_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_io(path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorKind::Config, "NOT-A-FILE", "not a regular file")
        .at(path)
        .got(S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket")
        .need("a YAML file");
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_io(path, errno);
  std::string text;
  std::vector<char> buffer(size_t{1} << 16);
  while (text.size() <= kMaxFileBytes) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int code = errno;
      ::close(fd);
      throw_io(path, code);
    }
    if (count == 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(fd);
  // A recipe that was read in part would pass for one with fewer keys.
  if (const auto size = static_cast<size_t>(info.st_size); text.size() < std::min(size, kMaxFileBytes)) {
    throw Error(ErrorKind::Config, "UNREADABLE", "cannot read the file: it ended before its size")
        .at(path)
        .got(std::to_string(text.size()) + " bytes")
        .need(std::to_string(size))
        .hint("it may have been changed while it was read: start again");
  }
  return text;
}

void check_text(std::string_view text, const Place& file) {
  Place at = file;
  if (text.size() > kMaxFileBytes) {
    throw config_error("TOO-LARGE", "the file is too large for a recipe", file)
        .need("at most " + format_bytes(static_cast<int64_t>(kMaxFileBytes)));
  }
  const std::string_view head = text.substr(0, 2);
  if (head == "\xff\xfe" || head == "\xfe\xff") {
    throw config_error("ENCODING", "the file is UTF-16", file).need("UTF-8").hint("save it as UTF-8");
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      std::tie(at.line, at.column) = line_and_column(text, i);
      throw config_error("ENCODING",
                         "a control byte at offset " + std::to_string(i) + ": this is not a text file", at)
          .need("UTF-8 text");
    }
  }
  const int64_t bad = find_invalid_utf8(text);
  if (bad >= 0) {
    std::tie(at.line, at.column) = line_and_column(text, static_cast<size_t>(bad));
    throw config_error("ENCODING", "invalid UTF-8 at byte offset " + std::to_string(bad), at)
        .need("UTF-8 text");
  }
}

Node parse_yaml(std::string_view text, const Place& file, KeepTags keep_tags) {
  check_text(text, file);
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  TreeBuilder builder(text, file, keep_tags);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    Place at = file;
    if (!file.is_override && error.mark.line >= 0) {
      at.line = error.mark.line + 1;
      at.column = error.mark.column + 1;
    }
    const int64_t tab = line_with_tab(text, at.line);
    if (tab > 0) {
      at.line = tab;
      at.column = 0;
      throw config_error("TAB", "a tab in the indentation", at).hint("indent with spaces");
    }
    throw config_error("SYNTAX", "not valid YAML: " + error.msg, at);
  }
  return builder.take_root();
}

}  // namespace tessera::config

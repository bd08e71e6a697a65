// The texts by which models call tools: a table with a row for each family of models.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/chat_template.h"

namespace tessera::text {

// A part of the text of a call.
struct CallPart {
  enum class Kind {
    Space,  // white space, or none
    Mark,   // `text`
    Maybe,  // `text`, or nothing
    Name,   // the name of a function: letters, digits and some signs
    Value,  // from one of the brackets in `text` to the one that closes it, outside of quotes
    Until,  // everything up to `text`, which ends it
  };
  Kind kind = Kind::Space;
  std::string_view text = {};
};

// The form of the value of a call.
enum class CallBody {
  Calls,      // a JSON object that names the function and has its arguments, or an array of such objects
  Arguments,  // a JSON object of the arguments; the name stands before it
  Tags,       // a pair of tags for each argument; the name stands before it
  Python,     // a list of calls in Python: [f(x=1), g()]
};

// The marks around each argument of CallBody::Tags.
struct TagMarks {
  std::string_view before_name = {}, behind_name = {}, before_value = {}, behind_value = {};
};

// One way to write calls. A text without a mark in front is only read as a call where an answer begins or a
// call has ended, and only if the request has a function of that name.
struct CallShape {
  std::vector<CallPart> parts;
  CallBody body = CallBody::Calls;
  TagMarks tags = {};

  // Returns the marks of which one begins the text; none if it may begin without one.
  std::vector<std::string_view> first_marks() const;
};

struct ToolFormat {
  std::string_view name;
  std::vector<CallShape> shapes;
  size_t id_letters = 0;      // length of the ids that the templates want; 0 = any
  bool has_channels = false;  // the shapes have its marks alone: a HarmonyStream reads every answer

  // Returns all marks, which a tokenizer may have as special tokens.
  std::vector<std::string_view> marks() const;
};

std::span<const ToolFormat> tool_formats();
// Returns their names, with commas between them.
std::string tool_format_names();
// Returns the row of that name. Throws Error(Config, "TOOL-FORMAT") if there is none.
const ToolFormat& find_tool_format(const std::string& name);

// Finds the format in which the template itself writes a call, by rendering an answer with one and reading it
// with each row of the table. Returns null if no row reads it, or the template writes no calls.
const ToolFormat* recognise_tool_format(const ChatTemplate& chat_template, const RenderOptions& options);

}  // namespace tessera::text

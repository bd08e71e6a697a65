// The instruction types: what their prompts say and which columns they read. One table line a type.
#pragma once

#include <span>
#include <string_view>

namespace tessera::data {

// How a system text, an instruction and an input are laid out. A place is {system}, {instruction}, {input}.
struct PromptStyle {
  std::string_view name;  // behind a type's colon; "" where the style is a type's own
  std::string_view system;
  std::string_view turn;           // with an input
  std::string_view turn_no_input;  // without
};

// Texts of a record: places are {column}, {column?} that may be missing, {one|other} of which the first that
// is there counts, {column:list} for a list as lines of - "element", {column:yaml} for a value as YAML.
// `instruction`, `input`, `output` and `system` are read from the entry's field_* columns.
struct InstructType {
  std::string_view name;
  const PromptStyle* style;
  std::string_view instruction, input, output;
  // The system text; the second of rows without an input, where it differs.
  std::string_view system, system_no_input;
  int num_eos = 1;      // behind the answer
  bool joined = false;  // prompt and answer become tokens as one text
  bool styled = false;  // the name takes a style behind a colon
};

// Nothing for a name that is no instruction type, or a style that is none.
struct FoundInstructType {
  const InstructType* type = nullptr;
  const PromptStyle* style = nullptr;
};
FoundInstructType find_instruct_type(std::string_view name);

std::span<const InstructType> instruct_types();

}  // namespace tessera::data

// The instruction types: what their prompts say and which columns they read. Each type is one line of a
// table.
#pragma once

#include <span>
#include <string_view>

namespace tessera::data {

// The layout of a system text, an instruction and an input. Its places are {system}, {instruction} and
// {input}.
struct PromptStyle {
  std::string_view name;  // as it stands behind a type's colon; "" if it is one type's own
  std::string_view system;
  std::string_view turn;           // for records with an input
  std::string_view turn_no_input;  // for records without one
};

// An instruction type. The places in its texts are {column}, {column?} that may be missing, {one|other} of
// which the first that is there counts, {column:list} for a list as lines of - "element", and {column:yaml}
// for a value as YAML. `instruction`, `input`, `output` and `system` are read from the entry's field_*
// columns.
struct InstructType {
  std::string_view name;
  const PromptStyle* style;
  std::string_view instruction, input, output;
  // The system text, and the one for records without an input, if that differs.
  std::string_view system, system_no_input;
  int num_eos = 1;      // number of EOS tokens behind the answer
  bool joined = false;  // prompt and answer become tokens as one text
  bool styled = false;  // the name takes a style behind a colon
};

// The result of find_instruct_type(). Both are null for a name that is no instruction type, or that has an
// unknown style.
struct FoundInstructType {
  const InstructType* type = nullptr;
  const PromptStyle* style = nullptr;
};
FoundInstructType find_instruct_type(std::string_view name);

std::span<const InstructType> instruct_types();

}  // namespace tessera::data

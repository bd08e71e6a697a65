#include "tessera/text/chat_template/builtins.h"

#include <span>

namespace tessera::text::jinja {

namespace {

// In the templates of this file, {% generation %} holds the assistant's words and the token that ends its
// turn.

constexpr std::string_view kChatml = R"({%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|im_end|>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] | trim + '<|eot_id|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] | trim + '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// Writes the system message before the words of the first user.
constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set system = namespace(text='') -%}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system.text = messages[0]['content'] + '\n\n' -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- '[INST] ' + system.text + message['content'] + ' [/INST]' -}}
{%- set system.text = '' -%}
{%- elif message['role'] == 'assistant' -%}
{{- ' ' -}}{%- generation -%}{{- message['content'] | trim + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the mistral template knows the roles system, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
)";

// Writes no preamble, and blank lines only between the parts.
constexpr std::string_view kAlpaca = R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' and loop.first -%}
{{- message['content'] -}}
{%- elif message['role'] == 'user' -%}
{{- '### Instruction:\n' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}
{{- '### Response:\n' -}}{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the alpaca template knows a first system message, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- if not loop.last -%}{{- '\n\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '\n\n### Response:\n' -}}
{%- endif -%}
)";

constexpr NamedTemplate kTemplates[] = {
    {"alpaca", kAlpaca}, {"chatml", kChatml}, {"llama3", kLlama3}, {"mistral", kMistral}};

}  // namespace

std::string_view builtin_source(std::string_view name) {
  for (const std::span<const NamedTemplate> list :
       {std::span<const NamedTemplate>(kTemplates), family_templates()}) {
    for (const NamedTemplate& known : list) {
      if (known.name == name) return known.source;
    }
  }
  return {};
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> names;
  for (const NamedTemplate& known : kTemplates) names.emplace_back(known.name);
  for (const NamedTemplate& known : family_templates()) names.emplace_back(known.name);
  return names;
}

}  // namespace tessera::text::jinja

// The built-in templates of model families. Each writes conversations of text as the family's own template
// does.
#include "tessera/text/chat_template/builtins.h"

namespace tessera::text::jinja {
namespace {

// Refuses a system message.
constexpr std::string_view kGemma = R"jinja({{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{{- raise_exception('the gemma template knows no system message') -}}
{%- endif -%}
{%- for message in messages -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'assistant' -%}
{{- '<start_of_turn>model\n' -}}
{%- generation -%}{{- message['content'] | trim + '<end_of_turn>' -}}{%- endgeneration -%}
{%- else -%}
{{- '<start_of_turn>' + message['role'] + '\n' + message['content'] | trim + '<end_of_turn>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}
)jinja";

// Writes the system message before the words of the first user.
constexpr std::string_view kGemma3 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- set before = system + '\n\n' if loop.first and system is not none else '' -%}
{%- if message['role'] == 'assistant' -%}
{{- '<start_of_turn>model\n' -}}
{%- generation -%}{{- message['content'] | trim + '<end_of_turn>' -}}{%- endgeneration -%}
{%- else -%}
{{- '<start_of_turn>' + message['role'] + '\n' + before + message['content'] | trim + '<end_of_turn>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}
)jinja";

// Writes the prompt for an answer behind every user turn.
constexpr std::string_view kPhi3 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{{- '<|system|>\n' + message['content'] + '<|end|>\n' -}}
{%- elif message['role'] == 'user' -%}
{{- '<|user|>\n' + message['content'] + '<|end|>\n<|assistant|>\n' -}}
{%- elif message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}
{{- '\n' -}}
{%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kPhi35 = R"jinja({%- for message in messages -%}
{%- if message['role'] == 'user' or (message['role'] == 'system' and message['content']) -%}
{{- '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<|assistant|>\n' -}}
{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}
{{- '\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kDeepseekV2 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{{- message['content'] + '\n\n' -}}
{%- elif message['role'] == 'user' -%}
{{- '<｜User｜>' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<｜Assistant｜>' -}}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%}
)jinja";

constexpr std::string_view kCohere = R"jinja({{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- if system is not none -%}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system + '<|END_OF_TURN_TOKEN|>' -}}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + message['content'] | trim + '<|END_OF_TURN_TOKEN|>' -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' -}}
{%- generation -%}{{- message['content'] | trim + '<|END_OF_TURN_TOKEN|>' -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' -}}{%- endif -%}
)jinja";

// Ends a user's turn with a line feed alone.
constexpr std::string_view kExaone =
    R"jinja({%- if messages and messages[0]['role'] != 'system' -%}{{- '[|system|][|endofturn|]\n' -}}{%- endif -%}
{%- for message in messages -%}
{{- '[|' + message['role'] + '|]' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '[|endofturn|]' -}}{%- endgeneration -%}
{%- elif message['role'] == 'user' -%}
{{- message['content'] -}}
{%- else -%}
{{- message['content'] + '[|endofturn|]' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '[|assistant|]' -}}{%- endif -%}
)jinja";

// Writes a single EOS, at the end of the whole conversation.
constexpr std::string_view kMetharme = R"jinja({{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- if system is none -%}
{%- set system = 'Enter RP mode. You shall reply to the user while staying in character. Your responses must be detailed, creative, immersive, and drive the scenario forward.' -%}
{%- endif -%}
{{- '<|system|>' + system -}}
{%- for message in turns -%}
{%- if message['role'] == 'user' -%}
{{- '<|user|>' + message['content'] | trim -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<|model|>' -}}
{%- generation -%}{{- message['content'] | trim -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
{{- '<|model|>' if add_generation_prompt else eos_token -}}
)jinja";

constexpr std::string_view kNemotronH = R"jinja({%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{{- '\n' -}}
{%- elif message['role'] == 'user' or (message['role'] == 'system' and loop.first) -%}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}
{%- else -%}
{{- raise_exception('the nemotron_h template knows a first system message, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";

// Leaves out a system message that is not the first message.
constexpr std::string_view kFalconH1 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{{- '\n' -}}
{%- elif message['role'] != 'system' or loop.first -%}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";

// Writes conversations of text; images are not written.
constexpr std::string_view kQwen2Vl = R"jinja({%- if messages and messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|im_end|>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kMistralV1 = R"jinja({{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- ' [INST] ' + (system + '\n\n' if loop.first and system is not none else '') + message['content'] + ' [/INST]' -}}
{%- elif message['role'] == 'assistant' -%}
{{- ' ' -}}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the mistral template knows the roles system, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
)jinja";

// Writes the system message before the user message that is the last turn; if an answer is last, leaves it
// out.
constexpr std::string_view kMistralV2V3 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- '[INST] ' + (system + '\n\n' if loop.last and system is not none else '') + message['content'] + '[/INST]' -}}
{%- elif message['role'] == 'assistant' -%}
{{- ' ' -}}
{%- generation -%}{{- message['content'] | trim + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the mistral template knows the roles system, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
)jinja";

// Writes what kMistralV2V3 writes, with other spaces.
constexpr std::string_view kMistralV3Tekken =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after an optional system message, user and assistant must take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- '[INST]' + (system + '\n\n' if loop.last and system is not none else '') + message['content'] + '[/INST]' -}}
{%- elif message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the mistral template knows the roles system, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
)jinja";

// Refuses a conversation without a system message, since the family's own default is a long text with a date.
constexpr std::string_view kMistralV7Tekken =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{%- if not messages or messages[0]['role'] != 'system' -%}
{{- raise_exception('the built-in mistral_v7_tekken template needs a system message; its family\'s own default is in the model\'s chat template: use tokenizer_default') -}}
{%- endif -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{{- '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' -}}
{%- elif message['role'] == 'user' -%}
{{- '[INST]' + message['content'] + '[/INST]' -}}
{%- elif message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('the mistral template knows the roles system, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
)jinja";

// Refuses a conversation without a system message, as kMistralV7Tekken does.
constexpr std::string_view kPhi4 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{%- if not messages or messages[0]['role'] != 'system' -%}
{{- raise_exception('the built-in phi_4 template needs a system message; its family\'s own default is in the model\'s chat template: use tokenizer_default') -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] not in ['user', 'assistant'] and not (loop.first and message['role'] == 'system') -%}
{{- raise_exception('the phi_4 template knows a first system message, user and assistant, not ' + message['role']) -}}
{%- endif -%}
{{- '<|im_start|>' + message['role'] + '<|im_sep|>' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|im_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant<|im_sep|>' -}}{%- endif -%}
)jinja";

// Writes an empty system message if there is none.
constexpr std::string_view kJamba =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = '' -%}
{%- set turns = messages -%}
{%- endif -%}
{{- '<|startoftext|><|bom|><|system|> ' + system + '<|eom|>' -}}
{%- for message in turns -%}
{%- if message['role'] == 'tool' or message['tool_calls'] -%}
{{- raise_exception('the built-in jamba template takes no tools; give the model\'s own by chat_template_jinja') -}}
{%- endif -%}
{{- '<|bom|><|' + message['role'] + '|> ' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|eom|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|eom|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|bom|><|assistant|>' -}}{%- endif -%}
)jinja";

constexpr std::string_view kLlama4 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}
{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = none -%}
{%- set turns = messages -%}
{%- endif -%}
{%- if system is not none -%}
{{- '<|header_start|>system<|header_end|>\n\n' + system | trim + '<|eot|>' -}}
{%- endif -%}
{%- for message in turns -%}
{%- if message['role'] in ['tool', 'ipython'] or message['tool_calls'] -%}
{{- raise_exception('the built-in llama4 template takes no tools; give the model\'s own by chat_template_jinja') -}}
{%- endif -%}
{{- '<|header_start|>' + message['role'] + '<|header_end|>\n\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|eot|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|eot|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|header_start|>assistant<|header_end|>\n\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kQwen25 = R"jinja({%- set first = messages[0] if messages else {} -%}
{%- if tools -%}
{{- '<|im_start|>system\n' -}}
{%- if first['role'] == 'system' -%}{{- first['content'] -}}{%- else -%}{{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -}}{%- endif -%}
{{- '\n\n' -}}
{{- "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" -}}
{%- for tool in tools -%}{{- '\n' + tool | tojson -}}{%- endfor -%}
{{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" -}}
{%- elif first['role'] == 'system' -%}
{{- '<|im_start|>system\n' + first['content'] + '<|im_end|>\n' -}}
{%- else -%}
{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'user' or (message['role'] == 'system' and not loop.first) -%}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<|im_start|>assistant' -}}
{%- if not message['tool_calls'] or message['content'] -%}{{- '\n' + message['content'] -}}{%- endif -%}
{%- for call in message['tool_calls'] or [] -%}
{%- set called = call['function'] if call['function'] is defined else call -%}
{{- '\n<tool_call>\n{"name": "' + called['name'] + '", "arguments": ' + called['arguments'] | tojson + '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif message['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message['content'] + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";

// Writes reasoning only in answers behind the last user message, and in the last answer even if it has none.
constexpr std::string_view kQwen3 = R"jinja({%- set first = messages[0] if messages else {} -%}
{%- if tools -%}
{{- '<|im_start|>system\n' -}}
{%- if first['role'] == 'system' -%}{{- first['content'] + '\n\n' -}}{%- endif -%}
{{- "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" -}}
{%- for tool in tools -%}{{- '\n' + tool | tojson -}}{%- endfor -%}
{{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" -}}
{%- elif first['role'] == 'system' -%}
{{- '<|im_start|>system\n' + first['content'] + '<|im_end|>\n' -}}
{%- endif -%}
{%- set asked = namespace(last=messages | length - 1, is_found=false) -%}
{%- for message in messages | reverse -%}
{%- if not asked.is_found and message['role'] == 'user' and not (message['content'].startswith('<tool_response>') and message['content'].endswith('</tool_response>')) -%}
{%- set asked.last = messages | length - 1 - loop.index0 -%}
{%- set asked.is_found = true -%}
{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message['role'] == 'user' or (message['role'] == 'system' and not loop.first) -%}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}
{%- elif message['role'] == 'assistant' -%}
{%- set content = message['content'] or '' -%}
{%- set thought = '' -%}
{%- if message['reasoning_content'] is string -%}
{%- set thought = message['reasoning_content'] -%}
{%- elif '</think>' in content -%}
{%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{- '<|im_start|>assistant\n' -}}
{%- if loop.index0 > asked.last and (loop.last or thought) -%}
{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') -}}
{%- else -%}
{{- content -}}
{%- endif -%}
{%- for call in message['tool_calls'] or [] -%}
{%- if content or not loop.first -%}{{- '\n' -}}{%- endif -%}
{%- set called = call['function'] or call -%}
{{- '<tool_call>\n{"name": "' + called['name'] + '", "arguments": ' -}}
{%- if called['arguments'] is string -%}{{- called['arguments'] -}}{%- else -%}{{- called['arguments'] | tojson -}}{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif message['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message['content'] + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n<think>\n\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '</think>\n\n' -}}{%- endif -%}
{%- endif -%}
)jinja";

// Leaves out reasoning in answers. The prompt opens and closes an empty channel of it unless enable_thinking
// is true.
constexpr std::string_view kGemma4 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{%- macro without_thought(text) -%}
{%- set kept = namespace(text='') -%}
{%- for part in text.split('<channel|>') -%}{%- set kept.text = kept.text + part.split('<|channel>')[0] -%}{%- endfor -%}
{{- kept.text | trim -}}
{%- endmacro -%}
{%- set thinks = enable_thinking is defined and enable_thinking -%}
{%- set has_system = messages and messages[0]['role'] in ['system', 'developer'] -%}
{{- bos_token -}}
{%- if thinks or has_system -%}
{{- '<|turn>system\n' + ('<|think|>\n' if thinks else '') + (messages[0]['content'] | trim if has_system else '') + '<turn|>\n' -}}
{%- endif -%}
{%- set turns = messages[1:] if has_system else messages -%}
{%- for message in turns -%}
{%- if message['role'] not in ['system', 'user', 'assistant'] or message['tool_calls'] -%}
{{- raise_exception('the built-in template takes text alone; give the model\'s own by chat_template_jinja') -}}
{%- endif -%}
{%- if message['role'] == 'assistant' -%}
{%- if loop.first or turns[loop.index0 - 1]['role'] != 'assistant' -%}{{- '<|turn>model\n' -}}{%- endif -%}
{%- generation -%}{{- without_thought(message['content']) + '<turn|>' -}}{%- endgeneration -%}
{%- else -%}
{{- '<|turn>' + message['role'] + '\n' + message['content'] | trim + '<turn|>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|turn>model\n' + ('' if thinks else '<|channel>thought\n<channel|>') -}}
{%- endif -%}
)jinja";

// Writes empty reasoning before every answer; only with skip_think false does the last one show its own.
constexpr std::string_view kExaone4 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] not in ['system', 'user', 'assistant'] or message['tool_calls'] -%}
{{- raise_exception('the built-in template takes text alone; give the model\'s own by chat_template_jinja') -}}
{%- endif -%}
{{- '[|' + message['role'] + '|]\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- set content = message['content'] or '' -%}
{%- set shows = skip_think is defined and not skip_think and loop.last -%}
{%- set thought = none -%}
{%- if '</think>' in content -%}
{%- set thought = content.split('</think>')[0].strip() -%}
{%- if thought.startswith('<think>') -%}{%- set thought = thought[7:].strip() -%}{%- endif -%}
{%- set content = content.split('</think>')[-1].strip() -%}
{%- endif -%}
{%- set thought = message['reasoning_content'] or thought -%}
{%- generation -%}
{%- if message['content'] -%}
{{- '<think>\n' + (thought if shows and thought is not none else '') + '\n</think>\n\n' + content -}}
{%- endif -%}
{{- '[|endofturn|]' -}}
{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '[|endofturn|]' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '[|assistant|]\n<think>\n' -}}
{%- if not (enable_thinking is defined and enable_thinking is true) -%}{{- '\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}
)jinja";

// Writes all system messages first, and leaves out reasoning.
constexpr std::string_view kDeepseekV3 =
    R"jinja({%- if tools -%}{{- raise_exception('the built-in template takes no tools; give the model\'s own by chat_template_jinja') -}}{%- endif -%}
{{- bos_token -}}
{%- set written = namespace(any=false) -%}
{%- for message in messages -%}
{%- if message['role'] not in ['system', 'user', 'assistant'] or message['tool_calls'] -%}
{{- raise_exception('the built-in template takes text alone; give the model\'s own by chat_template_jinja') -}}
{%- endif -%}
{%- if message['role'] == 'system' -%}
{{- ('\n\n' if written.any else '') + message['content'] -}}
{%- set written.any = true -%}
{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}
{{- '<｜User｜>' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}
{{- '<｜Assistant｜>' -}}
{%- generation -%}{{- (message['content'] or '').split('</think>')[-1] + '<｜end▁of▁sentence｜>' -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%}
)jinja";

constexpr NamedTemplate kFamilies[] = {
    {"aya", kCohere},
    {"cohere", kCohere},
    {"deepseek_v2", kDeepseekV2},
    {"deepseek_v3", kDeepseekV3},
    {"exaone", kExaone},
    {"exaone4", kExaone4},
    {"falcon_h1", kFalconH1},
    {"gemma", kGemma},
    {"gemma3", kGemma3},
    {"gemma3n", kGemma3},
    {"gemma4", kGemma4},
    {"gemma4_unified", kGemma4},
    {"jamba", kJamba},
    {"llama4", kLlama4},
    {"metharme", kMetharme},
    {"mistral_v1", kMistralV1},
    {"mistral_v2v3", kMistralV2V3},
    {"mistral_v3_tekken", kMistralV3Tekken},
    {"mistral_v7_tekken", kMistralV7Tekken},
    {"nemotron_h", kNemotronH},
    {"phi_3", kPhi3},
    {"phi_35", kPhi35},
    {"phi_4", kPhi4},
    {"qwen2_vl", kQwen2Vl},
    {"qwen3", kQwen3},
    {"qwen3_5", kQwen3},
    {"qwen_25", kQwen25},
};

}  // namespace

std::span<const NamedTemplate> family_templates() { return kFamilies; }

}  // namespace tessera::text::jinja

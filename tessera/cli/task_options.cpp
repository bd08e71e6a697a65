#include "tessera/cli/task_options.h"

#include "tessera/cli/verbs.h"

namespace tessera::cli {

void add_task_options(CLI::App& verb, CommandLine& line, TaskRunOptions& options) {
  verb.add_option(
          "--tasks", options.tasks,
          "Score tasks in place of the loss: task files of lm-evaluation-harness (F.yaml), or names of "
          "built-in tasks, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_adapter_options(
      verb, line, options.adapters,
      "With --tasks: adapter to apply to the model, or, with names, adapters that are scored one "
      "after the other on a model that is loaded once");
  verb.add_option("--output", options.output,
                  "With --tasks: write the results to this new JSON file; those of an adapter with a name to "
                  "FILE.NAME.json");
  verb.add_flag("--overwrite", options.overwrites, kOverwriteHelp);
  verb.add_flag("--log-samples,--log_samples", options.logs_samples,
                "With --tasks: add documents, prompts and answers to the results");
  verb.add_option(
          "--baseline", options.baseline,
          "With --tasks: compare each document with this results file of another model (--output with "
          "--log_samples); without, the target is such a file, too")
      ->check(CLI::ExistingFile);
  verb.add_flag("--apply-chat-template,--apply_chat_template", options.applies_chat_template,
                "With --tasks: put the prompts as chats, in the model's template");
  verb.add_option("--chat-template", options.chat_template,
                  "With --tasks: the same in another template, as in tessera generate");
  verb.add_option(
      "--fewshot-as-multiturn,--fewshot_as_multiturn", options.is_multiturn,
      "With --tasks and a chat template: true (the default) makes each example a turn of the chat, "
      "false puts all into one message");
  verb.add_option("--system-instruction,--system_instruction", options.system_instruction,
                  "With --tasks: a text before the description of each task; in chats the system message");
  verb.add_option("--limit", options.limit,
                  "With --tasks: score this many documents of each task; below 1 a share")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--num-fewshot,--num_fewshot", options.num_fewshot,
                  "With --tasks: examples before each question; default: that of the task")
      ->check(CLI::Range(0, 1000));
  verb.add_option("--batch-size,--batch_size", options.batch_size, "With --tasks: texts to generate at once")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--max-length,--max_length", options.max_length,
                  "With --tasks: tokens that the model takes; longer texts are cut; default: the model's")
      ->check(CLI::Range(1, 1 << 24));
  verb.add_option("--bootstrap-iters,--bootstrap_iters", options.bootstrap_iterations,
                  "With --tasks: resamples for standard errors without a formula; 0 = no standard errors")
      ->check(CLI::Range(0, 10'000'000));
  verb.add_option("--seed", options.seed,
                  "With --tasks: seed of the choice of examples, and of sampled answers");
}

}  // namespace tessera::cli

// tessera data show
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/data/prepare.h"
#include "tessera/data/select_chat_template.h"
#include "tessera/data/show.h"
#include "tessera/models/registry.h"

namespace tessera::cli {

void add_data(CLI::App& app, Action& action) {
  struct Options {
    std::string recipe;
    std::vector<std::string> overrides;
    data::ShowOptions show;
    bool no_color = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* data = app.add_subcommand("data", "Look at what a recipe trains on");
  data->require_subcommand(1);
  CLI::App* verb = data->add_subcommand("show", "Print rows with the trained tokens marked, and the counts");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--rows", options->show.num_rows, "Rows to print")->check(CLI::Range(0, 1000000));
  verb->add_flag("--tokens", options->show.tokens, "Mark the borders of tokens");
  verb->add_flag("--no-color", options->no_color, "Brackets instead of colour on a terminal");
  verb->callback([options, &action] {
    action = [options] {
      const config::Recipe recipe = config::load_recipe(options->recipe, options->overrides);
      data::Tokenizer tokenizer = data::Tokenizer::from_folder(
          recipe.tokenizer_config.empty() ? recipe.base_model : recipe.tokenizer_config);
      for (const auto& [role, token] : recipe.special_tokens) tokenizer.set_special_token(role, token);
      const auto chat_template = data::recipe_chat_template(recipe, tokenizer);
      data::PrepareOptions prepare;
      prepare.vocab_size = models::read_model_config(recipe.base_model)->vocab_size;
      const data::PreparedData prepared = data::prepare_data(recipe, tokenizer, chat_template.get(), prepare);
      data::ShowOptions show = options->show;
      show.color = !options->no_color && isatty(STDOUT_FILENO) != 0;
      data::show_data(std::cout, prepared, recipe, tokenizer, show);
      return 0;
    };
  });
}

}  // namespace tessera::cli

// Errors about one entry of `datasets:` or `test_datasets:`.
#pragma once

#include <string>
#include <string_view>

#include "tessera/config/data_config.h"
#include "tessera/core/error.h"

namespace tessera::config {

// Makes an Error(Config) at the entry.
Error entry_error(const DatasetConfig& dataset, std::string_view name, const std::string& what);

}  // namespace tessera::config

// Checks of what a caller of the library passes.
#pragma once

#include "tessera/core/error.h"

// Throws Error(Config) unless `condition` holds: for arguments of public functions, where TESSERA_ASSERT
// would call the caller's mistake a defect.
#define TESSERA_CHECK_ARGUMENT(condition, message)                                               \
  do {                                                                                           \
    if (!(condition)) throw ::tessera::Error(::tessera::ErrorKind::Config, "ARGUMENT", message); \
  } while (false)

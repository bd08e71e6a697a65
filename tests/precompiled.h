// Headers that are precompiled for every test, after LibTorch's if the test uses it. They would take two
// seconds for each file otherwise. Sources still include what they use.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
